package wire

import "strings"

// prefixes are what names of models begin with here and nowhere else.
var prefixes = []string{"video-", "image-"}

// Models are the services' names for models, by ours.
type Models map[string]string

// Name returns the service's name for a model: the one that is written down
// for it, or else what follows "video-" or "image-" in ours.
func (m Models) Name(model string) string {
	if name, written := m[model]; written {
		return name
	}
	for _, prefix := range prefixes {
		if name, ours := strings.CutPrefix(model, prefix); ours && name != "" {
			return name
		}
	}
	return model
}
