package catalog

import (
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Kind is what a model generates.
type Kind string

// The kinds. Each is the prefix of its models' names.
const (
	Video Kind = "video"
	Image Kind = "image"
)

// maxModel is the maximum length of a model's name in bytes. All of its
// characters are ASCII.
const maxModel = 256

// CheckModel returns INVALID_MODEL unless a name has the form video-{model_name}-{version}, or
// image-{model_name}-{version} for images. A name may have more parts. Parts consist of letters,
// digits, dots and underscores.
func CheckModel(kind Kind, model string) *fault.Fault {
	name, ok := strings.CutPrefix(model, string(kind)+"-")
	if !ok || len(model) > maxModel || !strings.Contains(name, "-") {
		return invalidModel(kind)
	}
	for part := range strings.SplitSeq(name, "-") {
		if part == "" || strings.ContainsFunc(part, notInNames) {
			return invalidModel(kind)
		}
	}
	return nil
}

func notInNames(r rune) bool {
	letter, digit := 'a' <= r|0x20 && r|0x20 <= 'z', '0' <= r && r <= '9'
	return !letter && !digit && r != '.' && r != '_'
}

func invalidModel(kind Kind) *fault.Fault {
	return fault.At(fault.InvalidModel, "model",
		"`model` must have the form %s-{model_name}-{version} here, in letters, digits, `.` and `_`", kind)
}
