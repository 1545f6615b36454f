package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// FamilyRow assigns models to a family and overrides what they support. Without
// models it overrides the family itself.
type FamilyRow struct {
	// The label of the family: A to F.
	Family string `json:"family"`

	// The models: an exact name, or a prefix and `*`. A name that begins with
	// `video-` or `image-` matches models of that kind. Any other name matches
	// the rest of the name for both kinds: `vidu-*` is `video-vidu-*` and
	// `image-vidu-*`. An exact name takes precedence over a prefix, a longer
	// prefix over a shorter one, and one kind over both.
	Models []Pattern `json:"models,omitempty"`

	// Overrides for videos.
	Video Override `json:"video,omitzero"`

	// Overrides for images.
	Image Override `json:"image,omitzero"`

	// Overrides for some of the models.
	Variants []VariantRow `json:"variants,omitempty"`
}

// VariantRow overrides what some models of a family support. It takes
// precedence over the cells of its family and of its row. A row's own variant
// takes precedence over that of the table for the same models.
type VariantRow struct {
	// The models: an exact name, or a prefix and `*`, of the model's name or of
	// what follows a dash in it. `q2*` matches video-vidu-q2 and
	// video-vidu-q2-pro.
	Models Pattern `json:"models"`

	// Overrides for videos.
	Video Override `json:"video,omitzero"`

	// Overrides for images.
	Image Override `json:"image,omitzero"`
}

// Override replaces cells of a family. An absent cell is unchanged.
type Override struct {
	// The allowed durations of a video in seconds, and the default.
	Duration *Numbers `json:"duration,omitempty"`

	// The allowed resolutions and the default.
	Resolution *Choice `json:"resolution,omitempty"`

	// The allowed aspect ratios and the default. An empty list allows none.
	AspectRatio *Choice `json:"aspect_ratio,omitempty"`

	// Whether videos can have sound.
	Audio *bool `json:"audio,omitempty"`

	// Whether frame_interpolate is supported.
	FrameInterpolate *bool `json:"frame_interpolate,omitempty"`

	// The allowed values of scene_type. An empty list allows none.
	SceneType []string `json:"scene_type,omitzero"`

	// The allowed values of inputs[].reference_type, each with an optional
	// category: `asset`, `video:base`. An empty list allows none.
	ReferenceType []ReferenceType `json:"reference_type,omitzero"`

	// Whether subject_inputs are supported, and which of their fields is
	// required: `none`, `id` or `name`.
	SubjectInputs *Subjects `json:"subject_inputs,omitempty"`

	// Whether inputs[].object_id is supported.
	ObjectID *bool `json:"object_id,omitempty"`

	// Whether inputs[].voice_id is supported.
	VoiceID *bool `json:"voice_id,omitempty"`

	// Whether inputs[].text is supported.
	Text *bool `json:"text,omitempty"`

	// The maximum number of inputs. `0` allows any number.
	MaxInputs *int `json:"max_inputs,omitempty"`

	// Whether a lastFrame is allowed without a firstFrame.
	LastFrameAlone *bool `json:"last_frame_alone,omitempty"`

	// The allowed numbers of images per request, and the default.
	Count *Numbers `json:"count,omitempty"`
}

// apply replaces the cells of r that o sets.
func (o *Override) apply(r *Rules) {
	replace(&r.Duration, o.Duration)
	replace(&r.Resolution, o.Resolution)
	replace(&r.AspectRatio, o.AspectRatio)
	replace(&r.Audio, o.Audio)
	replace(&r.FrameInterpolate, o.FrameInterpolate)
	if o.SceneType != nil {
		r.SceneType = o.SceneType
	}
	if o.ReferenceType != nil {
		r.ReferenceType = o.ReferenceType
	}
	replace(&r.SubjectInputs, o.SubjectInputs)
	replace(&r.ObjectID, o.ObjectID)
	replace(&r.VoiceID, o.VoiceID)
	replace(&r.Text, o.Text)
	replace(&r.MaxInputs, o.MaxInputs)
	replace(&r.LastFrameAlone, o.LastFrameAlone)
	replace(&r.Count, o.Count)
}

// replace sets cell to own unless own is nil.
func replace[T any](cell, own *T) {
	if own != nil {
		*cell = *own
	}
}

// Limits of the configuration.
const (
	maxDuration = int(MaxSeconds / Second)
	maxCount    = 100
	maxInputs   = 1000
)

// cells returns all cells, with their JSON names, whether o sets them, their kinds and their
// validation.
func (o *Override) cells() []cell {
	return []cell{
		{"duration", o.Duration != nil, Video, func() error { return o.Duration.validate(maxDuration) }},
		{"resolution", o.Resolution != nil, "", func() error { return validateResolution(o.Resolution) }},
		{"aspect_ratio", o.AspectRatio != nil, "", func() error { return o.AspectRatio.validate(validateRatio) }},
		{"audio", o.Audio != nil, Video, nil},
		{"frame_interpolate", o.FrameInterpolate != nil, Video, nil},
		{"scene_type", o.SceneType != nil, "", func() error { return validateWords(o.SceneType, validateWord) }},
		{"reference_type", o.ReferenceType != nil, "", func() error { return validateWords(o.ReferenceType, validateReference) }},
		{"subject_inputs", o.SubjectInputs != nil, Video, func() error { return o.SubjectInputs.validate() }},
		{"object_id", o.ObjectID != nil, Video, nil},
		{"voice_id", o.VoiceID != nil, Video, nil},
		{"text", o.Text != nil, "", nil},
		{"max_inputs", o.MaxInputs != nil, "", func() error { return within(*o.MaxInputs, maxInputs) }},
		{"last_frame_alone", o.LastFrameAlone != nil, Video, nil},
		{"count", o.Count != nil, Image, func() error { return o.Count.validate(maxCount) }},
	}
}

type cell struct {
	name     string
	set      bool
	kind     Kind         // empty: both kinds
	validate func() error // nil: always valid
}

// validate returns an error for a cell that is invalid or not for this kind.
func (o *Override) validate(kind Kind) error {
	for _, c := range o.cells() {
		switch {
		case !c.set:
		case c.kind != "" && c.kind != kind:
			return fmt.Errorf("%s %s: it is for the kind %s", kind, c.name, c.kind)
		case c.validate != nil:
			if err := c.validate(); err != nil {
				return fmt.Errorf("%s %s: %w", kind, c.name, err)
			}
		}
	}
	return nil
}

func (o *Override) empty() bool {
	return !slices.ContainsFunc(o.cells(), func(c cell) bool { return c.set })
}

// Validate returns an error if the family is unknown, a pattern or a cell is invalid, or the row has
// no effect.
func (f *FamilyRow) Validate() error {
	row := tableRow(f.Family)
	if row == nil {
		return fmt.Errorf("family %q: the families are %s", f.Family, Either(familyNames()))
	}
	if len(f.Models) == 0 && f.Video.empty() && f.Image.empty() && len(f.Variants) == 0 {
		return fmt.Errorf("family %s: it names no models and changes nothing", f.Family)
	}
	for _, p := range f.Models {
		if _, err := ParsePattern(string(p)); err != nil {
			return fmt.Errorf("family %s: %w", f.Family, err)
		}
	}
	if err := errors.Join(f.Video.validate(Video), f.Image.validate(Image)); err != nil {
		return fmt.Errorf("family %s: %w", f.Family, err)
	}
	seen := make(map[Pattern]bool, len(f.Variants))
	for _, v := range f.Variants {
		if err := v.validate(); err != nil {
			return fmt.Errorf("family %s: variant %s: %w", f.Family, v.Models, err)
		}
		if seen[v.Models] {
			return fmt.Errorf("family %s: variant %s is given twice", f.Family, v.Models)
		}
		seen[v.Models] = true
	}
	return nil
}

func (v *VariantRow) validate() error {
	if _, err := ParsePattern(string(v.Models)); err != nil {
		return err
	}
	if v.Video.empty() && v.Image.empty() {
		return errors.New("it changes nothing")
	}
	return errors.Join(v.Video.validate(Video), v.Image.validate(Image))
}

func (s Subjects) validate() error {
	if s != NoSubjects && s != SubjectsByID && s != SubjectsByName {
		return fmt.Errorf("%q is not supported; allowed: none, id, name", s)
	}
	return nil
}

func validateResolution(c *Choice) error {
	if len(c.Allowed) == 0 {
		return errors.New("it allows no resolution")
	}
	return c.validate(func(word string) error { return Variant{Resolution: word}.validate() })
}

func validateRatio(word string) error {
	width, height, _ := strings.Cut(word, ":")
	w, errWidth := digits(width)
	h, errHeight := digits(height)
	if errWidth != nil || errHeight != nil || w < 1 || h < 1 {
		return fmt.Errorf("%q is not an aspect ratio such as 16:9", word)
	}
	return nil
}

func validateReference(word string) error {
	category, value := ReferenceType(word).Split()
	if category != "" && category != string(Image) && category != string(Video) || strings.HasPrefix(word, ":") {
		return fmt.Errorf("%q: the category before the colon is image or video", word)
	}
	return validateWord(value)
}

func validateWord(word string) error {
	if word == "" || len(word) > 64 || strings.ContainsFunc(word, func(r rune) bool { return r != '-' && notInNames(r) }) {
		return fmt.Errorf("%q must consist of letters, digits, - and _", word)
	}
	return nil
}

func within(n, highest int) error {
	if n < 0 || n > highest {
		return fmt.Errorf("%d must be from 0 to %d", n, highest)
	}
	return nil
}
