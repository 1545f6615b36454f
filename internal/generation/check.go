package generation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Limits of docs/reference/tasks.md#platform-body, in characters.
const (
	MaxSessionID      = 50
	MaxSessionContext = 1000
	MaxMediaName      = 64
)

// Limits of fields that services may repeat in their answers. They are far above
// the limits of any model. If an answer were too long to be read, it would be
// unknown whether the task was accepted.
const (
	MaxPrompt   = 32768     // characters of a prompt or negative prompt
	MaxWord     = 1000      // characters of a name or a mode
	MaxExtended = 256 << 10 // bytes of metadata or ext_info
)

// Limits of /v1/video/generations, far above what any backend supports.
const (
	maxSide   = 16384 // pixels
	maxFPS    = 1000
	maxVideos = 100
	maxModel  = 256 // bytes, as for a model call
)

// check is the state of one Check.
type check struct {
	Request
	family *catalog.Family // nil: the model is in no family
}

// rule is one step of a check. It returns an error, or sets a default.
type rule func(*check) *fault.Fault

// platformRules are the rules for a platform task, in order.
var platformRules = []rule{
	(*check).prompt, (*check).texts, (*check).words, (*check).inputs, (*check).frames, (*check).voices, (*check).subjects, (*check).sceneType,
	(*check).duration, (*check).resolution, (*check).aspectRatio, (*check).audio, (*check).frameInterpolate, (*check).count, (*check).mediaName, (*check).extInfo,
}

// generationsRules are the rules for /v1/video/generations, in order.
var generationsRules = []rule{
	(*check).model, (*check).generationsTexts, (*check).image, (*check).numbers, (*check).duration, (*check).sides, (*check).pixels, (*check).resolution,
}

// Check checks r against the rules for all models and those of the family of
// its model. It returns a copy of r with the defaults of both. Values have the
// spelling of the family table. Options that the family does not support and
// the request disables (`disabled`, `false`) are removed.
//
// For a platform task, a malformed model name is INVALID_MODEL, and a model in
// no family is MODEL_NOT_FOUND. For /v1/video/generations, a model in no family
// is checked against the rules for all models only.
func Check(families *catalog.Families, r Request) (Checked, *fault.Fault) {
	c := check{Request: r}
	c.Inputs, c.Subjects = slices.Clone(r.Inputs), slices.Clone(r.Subjects)
	rules := platformRules
	if r.Passing() {
		if r.Model == "" {
			return Checked{}, missing("model")
		}
		rules = generationsRules
		if family, ok := families.Find(r.Kind, r.Model); ok {
			c.family = &family
		}
	} else {
		family, refused := families.Of(r.Kind, r.Model)
		if refused != nil {
			return Checked{}, refused
		}
		c.family = &family
	}
	for _, rule := range rules {
		if refused := rule(&c); refused != nil {
			return Checked{}, refused
		}
	}
	checked := Checked{Request: c.Request}
	if c.family != nil {
		checked.Family = c.family.Name
	}
	return checked, nil
}

// model checks the model of /v1/video/generations: its length and its characters.
// It appears in records and log lines.
func (c *check) model() *fault.Fault {
	if n := len(c.Model); n > maxModel {
		return invalid("model", "must have at most %d bytes, not %d", maxModel, n)
	}
	if strings.ContainsFunc(c.Model, unicode.IsControl) {
		return invalid("model", "must not contain control characters")
	}
	return nil
}

// prompt checks the prompt, which is required for a video, and for an image without
// inputs.
func (c *check) prompt() *fault.Fault {
	if strings.TrimSpace(c.Prompt) != "" || c.Kind == catalog.Image && len(c.Inputs) > 0 {
		return nil
	}
	if c.Kind == catalog.Image {
		return invalid("prompt", "must not be empty without `inputs`")
	}
	return invalid("prompt", "must not be empty")
}

// texts checks the length of texts, and that a session id has no control
// characters.
func (c *check) texts() *fault.Fault {
	if strings.ContainsFunc(c.SessionID, unicode.IsControl) {
		return invalid("session_id", "must not contain control characters")
	}
	refused := checkLengths([]limitedText{
		{"prompt", c.Prompt, MaxPrompt},
		{"negative_prompt", c.NegativePrompt, MaxPrompt},
		{"generation_mode", c.GenerationMode, MaxWord},
		{"session_id", c.SessionID, MaxSessionID},
		{"session_context", c.SessionContext, MaxSessionContext},
		{"output.media_name", c.Output.MediaName, MaxMediaName},
	})
	for i := 0; refused == nil && i < len(c.Inputs); i++ {
		in := &c.Inputs[i]
		refused = checkLengths([]limitedText{
			{at("inputs", i, "object_id"), in.ObjectID, MaxWord}, {at("inputs", i, "voice_id"), in.VoiceID, MaxWord}, {at("inputs", i, "text"), in.Text, MaxWord},
		})
	}
	for i := 0; refused == nil && i < len(c.Subjects); i++ {
		in := &c.Subjects[i]
		refused = checkLengths([]limitedText{{at("subject_inputs", i, "id"), in.ID, MaxWord}, {at("subject_inputs", i, "name"), in.Name, MaxWord}})
	}
	return refused
}

// generationsTexts checks the texts of /v1/video/generations.
func (c *check) generationsTexts() *fault.Fault {
	if n := len(c.Fields["metadata"]); n > MaxExtended {
		return invalid("metadata", "must have at most %d bytes, not %d", MaxExtended, n)
	}
	texts := []limitedText{{"prompt", c.Prompt, MaxPrompt}}
	for _, text := range []limitedText{{"negative_prompt", "", MaxPrompt}, {"user", "", MaxWord}, {"response_format", "", MaxWord}} {
		_ = json.Unmarshal(c.Fields[text.param], &text.text) // a value of another type has no text
		texts = append(texts, text)
	}
	return checkLengths(texts)
}

// limitedText is a text with its maximum length in characters.
type limitedText struct {
	param, text string
	max         int
}

// checkLengths returns an error for the first text that is too long.
func checkLengths(texts []limitedText) *fault.Fault {
	for _, text := range texts {
		if len(text.text) <= text.max {
			continue
		}
		if n := utf8.RuneCountInString(text.text); n > text.max {
			return invalid(text.param, "must have at most %d characters, not %d", text.max, n)
		}
	}
	return nil
}

// extInfo checks ext_info. It is passed to the service unchanged, so its values must
// equal the priced ones.
func (c *check) extInfo() *fault.Fault {
	if n := len(c.ExtInfo); n > MaxExtended {
		return invalid("ext_info", "must have at most %d bytes, not %d", MaxExtended, n)
	}
	requested := c.Request
	requested.Output.Count = cmp.Or(requested.Output.Count, new(1))
	aliases := aliasesWithin("ext_info", c.ExtInfo)
	if refused := c.readable(aliases); refused != nil {
		return refused
	}
	return requested.adopt(aliases)
}

// words checks fields that allow only a few words.
func (c *check) words() *fault.Fault {
	onOff := []string{string(Enabled), string(Disabled)}
	for _, word := range []struct {
		param, word string
		allowed     []string
	}{
		{"enhance_prompt", string(c.EnhancePrompt), onOff},
		{"input_region", c.InputRegion, []string{"mainland", "oversea"}},
		{"output.audio_generation", string(c.Output.AudioGeneration), onOff},
		{"output.enhance_switch", string(c.Output.EnhanceSwitch), onOff},
		{"output.frame_interpolate", string(c.Output.FrameInterpolate), onOff},
		{"output.format", c.Output.Format, []string{"jpeg", "png"}},
	} {
		if refused := oneOf(word.param, word.word, word.allowed); refused != nil {
			return refused
		}
	}
	return nil
}

// mediaName checks media_name, which becomes a segment of a link, and class_id.
func (c *check) mediaName() *fault.Fault {
	name := c.Output.MediaName
	switch {
	case strings.ContainsAny(name, `/\`) || strings.ContainsFunc(name, invisible):
		return invalid("output.media_name", "must not contain `/`, `\\`, or control and other invisible characters")
	case name == "." || name == "..":
		return invalid("output.media_name", "must not be %q: it becomes part of a link", name)
	case c.Output.ClassID < 0:
		return invalid("output.class_id", "must be at least 0, not %d", c.Output.ClassID)
	}
	return nil
}

// invisible reports whether a character is not displayed, or changes the order of
// displayed characters.
func invisible(r rune) bool { return !unicode.IsPrint(r) }

func (c *check) sceneType() *fault.Fault {
	if c.SceneType == "" || slices.Contains(c.family.SceneType, c.SceneType) {
		return nil
	}
	return c.notAllowed("scene_type", c.SceneType, c.family.SceneType)
}

// notAllowed returns an error for a value that the family does not allow.
func (c *check) notAllowed(param, word string, allowed []string) *fault.Fault {
	if len(allowed) == 0 {
		return c.unsupported(param)
	}
	return invalid(param, "must be %s for %s, not %s", catalog.Either(allowed), c.models(), quote(word))
}

// unsupported returns an error for a field that the family does not support.
func (c *check) unsupported(param string) *fault.Fault {
	return invalid(param, "is not supported by %s", c.models())
}

// models describes the models that a rule applies to.
func (c *check) models() string {
	if c.Kind == catalog.Image {
		return "images of family " + c.family.Name
	}
	return "family " + c.family.Name
}

func invalid(param, format string, args ...any) *fault.Fault {
	return fault.At(fault.InvalidParameter, param, "`%s` %s", param, fmt.Sprintf(format, args...))
}

// oneOf returns an error for a value that is not allowed. An empty value means not
// set.
func oneOf(param, word string, allowed []string) *fault.Fault {
	if word == "" || slices.Contains(allowed, word) {
		return nil
	}
	return invalid(param, "must be %s, not %s", catalog.Either(allowed), quote(word))
}

// quote quotes at most 64 characters of a caller's value.
func quote(word string) string {
	const limit = 64
	if runes := []rune(word); len(runes) > limit {
		word = string(runes[:limit]) + "…"
	}
	return strconv.Quote(word)
}

// at returns the path of a field of the n-th element of a list.
func at(list string, n int, field string) string {
	return list + "[" + strconv.Itoa(n) + "]." + field
}
