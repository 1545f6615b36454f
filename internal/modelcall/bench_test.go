package modelcall

import (
	"strings"
	"testing"
)

// BenchmarkParse measures the checks of a body before money is reserved.
func BenchmarkParse(b *testing.B) {
	history := strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"`+strings.Repeat("The quick brown fox. ", 20)+`"},`, 400), ",")
	for _, c := range []struct {
		name   string
		schema *Schema
		body   string
	}{
		{"small", Chat, `{"model":"gpt-4.1","max_tokens":1024,"stream":true,"messages":[{"role":"user","content":"hello"}]}`},
		{"400_messages", Messages, `{"model":"claude-sonnet-4","max_tokens":1024,"stream":true,"temperature":0.7,"system":"You are a helpful assistant.","messages":[` + history + `]}`},
		{"tools", Chat, `{"model":"gpt-4.1","max_tokens":1024,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":3}],"service_tier":"auto",` +
			`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x.example/a.png"}},{"type":"text","text":"what?"}]}]}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			body := []byte(c.body)
			b.ReportAllocs()
			for b.Loop() {
				var q Request
				if f := q.Parse(c.schema, body, false); f != nil {
					b.Fatal(f)
				}
				if f := q.RefuseUnpriced(body, nil); f != nil {
					b.Fatal(f)
				}
				if a := q.Spec(body, false); a.Model == "" {
					b.Fatal(a)
				}
			}
		})
	}
}
