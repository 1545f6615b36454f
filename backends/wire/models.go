package wire

import "strings"

// prefixes begin the gateway's model names. Services do not use them.
var prefixes = []string{"video-", "image-"}

// Models maps the gateway's model names to the service's.
type Models map[string]string

// Name returns the service's name for a model: the configured one, or the model
// without the prefix "video-" or "image-".
func (m Models) Name(model string) string {
	if name, configured := m[model]; configured {
		return name
	}
	for _, prefix := range prefixes {
		if name, found := strings.CutPrefix(model, prefix); found && name != "" {
			return name
		}
	}
	return model
}
