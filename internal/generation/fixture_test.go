package generation_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
)

// standard returns the six families of the table. Their models are named after
// their letter: video-a-1, image-a-1, video-c-q2.
func standard(t testing.TB, changes ...catalog.FamilyRow) *catalog.Families {
	t.Helper()
	rows := changes
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		rows = append(rows, catalog.FamilyRow{Family: name, Models: []catalog.Pattern{catalog.Pattern(strings.ToLower(name) + "-*")}})
	}
	families, err := catalog.NewFamilies(rows)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// object is a JSON object.
type object = map[string]any

// submission returns a body with a model, a prompt, and members by path:
// "output.duration".
func submission(model string, members object) []byte {
	body := object{"model": model, "prompt": "a boat"}
	for path, value := range members {
		into := body
		for {
			name, rest, deeper := strings.Cut(path, ".")
			if !deeper {
				into[name] = value
				break
			}
			if into[name] == nil {
				into[name] = object{}
			}
			into, path = into[name].(object), rest
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return text
}

// check decodes a body by the prefix of its model and checks it.
func check(families *catalog.Families, body []byte) (generation.Checked, *fault.Fault) {
	decode := generation.DecodeVideo
	if strings.Contains(string(body), `"model":"image-`) {
		decode = generation.DecodeImage
	}
	r, _, refused := decode(body)
	if refused != nil {
		return generation.Checked{}, refused
	}
	return generation.Check(families, r)
}

// refusedAt reports whether a fault has this code and path and contains all of
// the words.
func refusedAt(refused *fault.Fault, code fault.Code, param string, words ...string) bool {
	if refused == nil || refused.Code != code || refused.Param != param {
		return false
	}
	for _, word := range words {
		if !strings.Contains(refused.Message, word) {
			return false
		}
	}
	return true
}

const anImage = "https://files.example/a.png"

// references returns n inputs.
func references(n int) []any {
	inputs := make([]any, n)
	for i := range inputs {
		inputs[i] = object{"url": anImage}
	}
	return inputs
}
