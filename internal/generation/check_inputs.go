package generation

import (
	"cmp"
	"encoding/base64"
	"io"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

const (
	imageCategory = string(catalog.Image)
	videoCategory = string(catalog.Video)
)

// inputs checks each input without fetching it.
func (c *check) inputs() *fault.Fault {
	if limit := c.family.MaxInputs; limit > 0 && len(c.Inputs) > limit {
		return invalid("inputs", "must be at most %d for %s, not %d", limit, c.models(), len(c.Inputs))
	}
	for i := range c.Inputs {
		if refused := c.input(&c.Inputs[i], i); refused != nil {
			return refused
		}
	}
	return nil
}

// input checks the n-th input.
func (c *check) input(in *Input, n int) *fault.Fault {
	path := func(field string) string { return at("inputs", n, field) }
	if err := egress.CheckURL(in.URL); err != nil {
		return invalid(path("url"), "%v", err)
	}
	for _, word := range []struct {
		field   string
		word    *string
		allowed []string // the first is the default
	}{
		{"category", &in.Category, []string{imageCategory, videoCategory}},
		{"usage", &in.Usage, []string{Reference, FirstFrame, LastFrame}},
	} {
		if refused := oneOf(path(word.field), *word.word, word.allowed); refused != nil {
			return refused
		}
		*word.word = cmp.Or(*word.word, word.allowed[0])
	}
	if in.Usage != Reference && in.Category != imageCategory {
		return invalid(path("usage"), "must be reference for a video: a %s is an image", in.Usage)
	}
	if allowed := c.family.References(in.Category); in.ReferenceType != "" && !slices.Contains(allowed, in.ReferenceType) {
		return c.referenceNotAllowed(path("reference_type"), in, allowed)
	}
	for _, option := range []struct {
		field     string
		given     string
		supported bool
		imageOnly bool
	}{
		{"object_id", in.ObjectID, c.family.ObjectID, true},
		{"voice_id", in.VoiceID, c.family.VoiceID, true},
		{"text", in.Text, c.family.Text, false},
	} {
		switch {
		case option.given == "":
		case !option.supported:
			return c.unsupported(path(option.field))
		case option.imageOnly && in.Category != imageCategory:
			return invalid(path(option.field), "is for inputs of the category image")
		}
	}
	return keepSound(path("keep_original_sound"), in)
}

func (c *check) referenceNotAllowed(param string, in *Input, allowed []string) *fault.Fault {
	other := videoCategory
	if in.Category == videoCategory {
		other = imageCategory
	}
	if slices.Contains(c.family.References(other), in.ReferenceType) {
		return invalid(param, "%s is allowed only for the category %s", in.ReferenceType, other)
	}
	return c.notAllowed(param, in.ReferenceType, allowed)
}

// keepSound removes keep_original_sound from images.
func keepSound(param string, in *Input) *fault.Fault {
	if refused := oneOf(param, string(in.KeepOriginalSound), []string{string(Enabled), string(Disabled)}); refused != nil {
		return refused
	}
	if in.Category == videoCategory {
		return nil
	}
	if in.KeepOriginalSound == Enabled {
		return invalid(param, "is for inputs of the category video")
	}
	in.KeepOriginalSound = ""
	return nil
}

// frames allows one first and one last frame. A last frame requires a first frame.
func (c *check) frames() *fault.Fault {
	count := map[string]int{}
	for i, in := range c.Inputs {
		if count[in.Usage]++; in.Usage != Reference && count[in.Usage] > 1 {
			return invalid(at("inputs", i, "usage"), "is a second %s; only one is allowed", in.Usage)
		}
	}
	if count[LastFrame] > 0 && count[FirstFrame] == 0 && !c.family.LastFrameAlone {
		i := slices.IndexFunc(c.Inputs, func(in Input) bool { return in.Usage == LastFrame })
		return invalid(at("inputs", i, "usage"), "is lastFrame, which requires another input as the firstFrame")
	}
	return nil
}

// voices requires an object_id for all images if an input has a voice.
func (c *check) voices() *fault.Fault {
	voice := slices.IndexFunc(c.Inputs, func(in Input) bool { return in.VoiceID != "" })
	noSubject := slices.IndexFunc(c.Inputs, func(in Input) bool { return in.Category == imageCategory && in.ObjectID == "" })
	if voice < 0 || noSubject < 0 {
		return nil
	}
	return invalid(at("inputs", voice, "voice_id"), "requires an `object_id` for all images; `%s` is missing", at("inputs", noSubject, "object_id"))
}

// subjects checks that subjects have their id or name.
func (c *check) subjects() *fault.Fault {
	if len(c.Subjects) == 0 {
		return nil
	}
	if !c.family.SubjectInputs.Taken() {
		return c.unsupported("subject_inputs")
	}
	for i, subject := range c.Subjects {
		if err := egress.CheckURL(subject.URL); err != nil {
			return invalid(at("subject_inputs", i, "url"), "%v", err)
		}
		field, given := "id", subject.ID
		if c.family.SubjectInputs == catalog.SubjectsByName {
			field, given = "name", subject.Name
		}
		if given == "" {
			param := at("subject_inputs", i, field)
			return fault.At(fault.MissingParameter, param, "`%s` is required by %s", param, c.models())
		}
	}
	return nil
}

// image checks the image of /v1/video/generations: a URL, a data URL of an
// image, or Base64.
func (c *check) image() *fault.Fault {
	if len(c.Inputs) == 0 {
		return nil
	}
	text := c.Inputs[0].URL
	if strings.Contains(text, "://") {
		if err := egress.CheckURL(text); err != nil {
			return invalid("image", "%v", err)
		}
		return nil
	}
	data := text
	if head, body, isURL := cutDataURL(text); isURL {
		if !strings.HasPrefix(head, "image/") || !strings.HasSuffix(head, ";base64") {
			return invalid("image", "must be a data URL of an image in Base64, such as data:image/png;base64,…")
		}
		data = body
	}
	if !isBase64(data) {
		return invalid("image", "must be a URL, or an image in Base64")
	}
	return nil
}

// cutDataURL splits a data URL (RFC 2397) into its type and its data. Scheme
// and type ignore case.
func cutDataURL(text string) (head, data string, ok bool) {
	const scheme = "data:"
	if len(text) < len(scheme) || !strings.EqualFold(text[:len(scheme)], scheme) {
		return "", "", false
	}
	head, data, _ = strings.Cut(text[len(scheme):], ",")
	if len(head) > 128 {
		return "", data, true
	}
	return strings.ToLower(head), data, true
}

// isBase64 reports whether text is Base64 of at least one byte, with or without
// padding. It does not keep the decoded bytes.
func isBase64(text string) bool {
	text = strings.TrimRight(text, "=")
	n, err := io.Copy(io.Discard, base64.NewDecoder(base64.RawStdEncoding, strings.NewReader(text)))
	return err == nil && n > 0
}
