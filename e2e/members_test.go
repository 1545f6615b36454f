package e2e

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
)

// membersOf returns the JSON names of the members of an SDK's parameter; for a
// union, those of all its forms.
func membersOf(params any) (names []string) {
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		for field := range t.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name != "" && name != "-":
				names = append(names, name)
			case name == "" && strings.Contains(options, "inline") && field.Type.Kind() == reflect.Pointer:
				walk(field.Type.Elem())
			}
		}
	}
	walk(reflect.TypeOf(params))
	return names
}

func TestEveryMemberOfTheSDKsIsKnown(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g, _ := paying(t, b, "1.00")
	const (
		chatBody       = `{"model":"m-1","max_tokens":5,"messages":[{"role":"user","content":"Hi"}],`
		completionBody = `{"model":"m-1","max_tokens":5,"prompt":"Hi",`
	)
	for _, c := range []struct {
		path, format string
		params       any
	}{
		{"/v1/chat/completions", chatBody + `%q:{}}`, openai.ChatCompletionNewParams{}},
		{"/v1/chat/completions", chatBody + `"tools":[{%q:{},"type":"function"}]}`, openai.ChatCompletionToolUnionParam{}},
		{"/v1/chat/completions", chatBody + `"functions":[{%q:{}}]}`, openai.ChatCompletionNewParamsFunction{}},
		{"/v1/completions", completionBody + `%q:{}}`, openai.CompletionNewParams{}},
		{"/v1/messages", chatBody + `%q:{}}`, anthropic.MessageNewParams{}},
		{"/v1/messages", chatBody + `"tools":[{%q:{}}]}`, anthropic.ToolUnionParam{}},
		{"/v1/messages", chatBody + `%q:{}}`, anthropic.BetaMessageNewParams{}},
		{"/v1/messages", chatBody + `"tools":[{%q:{}}]}`, anthropic.BetaToolUnionParam{}},
		{"/v1/messages", chatBody + `"fallbacks":[{%q:{},"model":"m-1"}]}`, anthropic.BetaFallbackParam{}},
	} {
		names := membersOf(c.params)
		if len(names) < 2 {
			t.Fatalf("%T has the members %q", c.params, names)
		}
		for _, name := range names {
			if got := g.call(c.path, fmt.Sprintf(c.format, name), g.bearer()...); strings.Contains(got.Body, "not known to the gateway") {
				t.Errorf("%T: %s gets %d %s", c.params, name, got.Status, got.Body)
			}
		}
		if got := g.call(c.path, fmt.Sprintf(c.format, "not_there"), g.bearer()...); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "not known to the gateway") {
			t.Errorf("%s: a member that is not known gets %d %s", c.format, got.Status, got.Body)
		}
	}
}
