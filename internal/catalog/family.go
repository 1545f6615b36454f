package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Family is the rules for the models of one family, for one kind of generation.
type Family struct {
	// Name is the label of the family: A to F.
	Name string `json:"family"`

	// Kind is the kind of generation.
	Kind Kind `json:"type"`

	Rules
}

// Rules is one row of the table of families. A zero cell means that the option
// is not supported, except for MaxInputs and LastFrameAlone.
type Rules struct {
	Duration         Numbers         `json:"duration,omitzero"` // of a video in seconds
	Resolution       Choice          `json:"resolution,omitzero"`
	AspectRatio      Choice          `json:"aspect_ratio,omitzero"`
	Audio            bool            `json:"audio,omitempty"`
	FrameInterpolate bool            `json:"frame_interpolate,omitempty"`
	SceneType        []string        `json:"scene_type,omitempty"`
	ReferenceType    []ReferenceType `json:"reference_type,omitempty"`
	SubjectInputs    Subjects        `json:"subject_inputs,omitempty"`
	ObjectID         bool            `json:"object_id,omitempty"`
	VoiceID          bool            `json:"voice_id,omitempty"`
	Text             bool            `json:"text,omitempty"`             // of an input
	MaxInputs        int             `json:"max_inputs"`                 // zero: any number
	LastFrameAlone   bool            `json:"last_frame_alone,omitempty"` // a lastFrame needs no firstFrame
	Count            Numbers         `json:"count,omitzero"`             // of images
}

// Numbers are the integers that a field may have.
type Numbers struct {
	// The allowed numbers, single and as ranges: "5", "1-10".
	Allowed []Range `json:"allowed"`

	// The default. Zero: none, so the backend decides.
	Default int `json:"default,omitempty"`
}

// Has reports whether n is allowed.
func (ns Numbers) Has(n int) bool {
	return slices.ContainsFunc(ns.Allowed, func(r Range) bool { return r.Min <= n && n <= r.Max })
}

// String returns the numbers as text: "5 or 10", "from 1 to 10".
func (ns Numbers) String() string {
	words := make([]string, len(ns.Allowed))
	for i, r := range ns.Allowed {
		words[i] = strconv.Itoa(r.Min)
		if r.Max != r.Min {
			words[i] = fmt.Sprintf("from %d to %d", r.Min, r.Max)
		}
	}
	return Either(words)
}

func (ns Numbers) validate(highest int) error {
	for _, r := range ns.Allowed {
		if r.Min < 1 || r.Max < r.Min || r.Max > highest {
			return fmt.Errorf("%d-%d does not lie within 1-%d", r.Min, r.Max, highest)
		}
	}
	switch {
	case len(ns.Allowed) == 0:
		return errors.New("it allows no number")
	case ns.Default != 0 && !ns.Has(ns.Default):
		return fmt.Errorf("the default %d is not allowed: it must be %v", ns.Default, ns)
	}
	return nil
}

// Range is the numbers from Min to Max. Its text is "1-10", or "5" for one
// number.
type Range struct{ Min, Max int }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Range) UnmarshalText(text []byte) error {
	from, to, isRange := strings.Cut(string(text), "-")
	if !isRange {
		to = from
	}
	var err error
	if r.Min, err = digits(from); err == nil {
		r.Max, err = digits(to)
	}
	if err != nil {
		return fmt.Errorf("%q is neither a number nor a range such as 1-10", text)
	}
	return nil
}

func digits(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(text)
}

// MarshalText implements encoding.TextMarshaler.
func (r Range) MarshalText() ([]byte, error) {
	if r.Min == r.Max {
		return strconv.AppendInt(nil, int64(r.Min), 10), nil
	}
	return fmt.Appendf(nil, "%d-%d", r.Min, r.Max), nil
}

// Choice is the values that a text field may have. Without values, the field is
// not supported.
type Choice struct {
	// The allowed values, in the spelling that is stored and sent to backends.
	// Comparisons ignore case.
	Allowed []string `json:"allowed"`

	// The default. Empty: none, so the backend decides.
	Default string `json:"default,omitempty"`

	// Whether the default applies only without inputs. With inputs, the result
	// has their ratio.
	TextOnly bool `json:"text_only,omitempty"`
}

// Find returns the allowed value that equals word in any case.
func (c Choice) Find(word string) (string, bool) {
	i := slices.IndexFunc(c.Allowed, func(allowed string) bool { return strings.EqualFold(allowed, word) })
	if i < 0 {
		return "", false
	}
	return c.Allowed[i], true
}

// String returns the values as text: "16:9 or 9:16".
func (c Choice) String() string { return Either(c.Allowed) }

func (c Choice) validate(check func(string) error) error {
	if err := validateWords(c.Allowed, check); err != nil {
		return err
	}
	switch found, ok := c.Find(c.Default); {
	case c.Default == "" && c.TextOnly:
		return errors.New("text_only needs a default")
	case c.Default != "" && (!ok || found != c.Default):
		return fmt.Errorf("the default %q is not allowed: it must be %v", c.Default, c)
	}
	return nil
}

// validateWords returns an error for a value that fails check, or that is
// duplicated in any case.
func validateWords[T ~string](words []T, check func(string) error) error {
	seen := make(map[string]bool, len(words))
	for _, word := range words {
		if err := check(string(word)); err != nil {
			return err
		}
		key := strings.ToLower(string(word))
		if seen[key] {
			return fmt.Errorf("%q is given twice", word)
		}
		seen[key] = true
	}
	return nil
}

// ReferenceType is a value of inputs[].reference_type. A category before a
// colon limits it: "video:feature". Without a category, it is for both.
type ReferenceType string

// Split returns the category and the value. The category is empty if the value is for both.
func (r ReferenceType) Split() (category, value string) {
	if category, value, found := strings.Cut(string(r), ":"); found {
		return category, value
	}
	return "", string(r)
}

// References returns the values of reference_type for inputs of a category.
func (r *Rules) References(category string) []string {
	var values []string
	for _, reference := range r.ReferenceType {
		if only, value := reference.Split(); only == "" || only == category {
			values = append(values, value)
		}
	}
	return values
}

// Subjects says whether subject_inputs are supported, and which of their fields
// is required.
type Subjects string

// The values of Subjects.
const (
	NoSubjects     Subjects = "none" // as the zero Subjects
	SubjectsByID   Subjects = "id"
	SubjectsByName Subjects = "name"
)

// Taken reports whether subject_inputs are supported.
func (s Subjects) Taken() bool { return s == SubjectsByID || s == SubjectsByName }

// Either joins words as in "a, b or c". Without words it returns "nothing".
func Either(words []string) string {
	switch last := len(words) - 1; last {
	case -1:
		return "nothing"
	case 0:
		return words[0]
	default:
		return strings.Join(words[:last], ", ") + " or " + words[last]
	}
}
