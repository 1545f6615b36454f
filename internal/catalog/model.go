package catalog

import (
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Kind is what a model generates.
type Kind string

// The kinds. Each is the word that the names of its models begin with.
const (
	Video Kind = "video"
	Image Kind = "image"
)

// maxModel bounds the name of a model, in bytes; every character of it is one.
const maxModel = 256

// CheckModel refuses, as INVALID_MODEL, a name that does not have the form
// video-{model_name}-{version} or, for images, image-{model_name}-{version}. Its parts consist of letters, digits, dots and
// underscores, and there may be more than two of them.
func CheckModel(kind Kind, model string) *fault.Fault {
	name, ok := strings.CutPrefix(model, string(kind)+"-")
	if !ok || len(model) > maxModel || !strings.Contains(name, "-") {
		return invalidModel(kind)
	}
	for part := range strings.SplitSeq(name, "-") {
		if part == "" || strings.ContainsFunc(part, notOfNames) {
			return invalidModel(kind)
		}
	}
	return nil
}

func notOfNames(r rune) bool {
	letter, digit := 'a' <= r|0x20 && r|0x20 <= 'z', '0' <= r && r <= '9'
	return !letter && !digit && r != '.' && r != '_'
}

func invalidModel(kind Kind) *fault.Fault {
	return fault.At(fault.InvalidModel, "model",
		"`model` must have the form %s-{model_name}-{version} here, in letters, digits, `.` and `_`", kind)
}
