package generation_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
)

// standard are the six families as the table has them, each with the models of
// its own letter: video-a-1, image-a-1, video-c-q2.
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

// object is a body that a test makes.
type object = map[string]any

// submission is a body with the model and the prompt that it needs, and members
// by their paths: "output.duration".
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

// check decodes a body by the word its model begins with, and checks it.
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

// refusedAt tells whether a fault is the one that is wanted, at the path, with
// all of the words.
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

// references are n inputs.
func references(n int) []any {
	inputs := make([]any, n)
	for i := range inputs {
		inputs[i] = object{"url": anImage}
	}
	return inputs
}
