package strictjson

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// bodies are messages calls of the forms that differ in speed.
var bodies = []struct {
	name string
	body []byte
}{
	{"1KB_chat", chat(4, 180)},
	{"200KB_one_string", chat(1, 200<<10)},
	{"200KB_400_messages", chat(400, 460)},
	{"200KB_400_prose", prose(400)},
	{"200KB_pretty", indented(chat(400, 460))},
	{"200KB_code", call(`{"role":"user","content":"` + strings.Repeat(`\tif err != nil {\n\t\treturn \"no\"\n\t}\n`, 5000) + `"}`)},
	{"200KB_chinese", call(`{"role":"user","content":"` + strings.Repeat("验证成功，模型网关。", 6800) + `"}`)},
	{"200KB_curly_quotes", call(`{"role":"user","content":"` + strings.Repeat("“It is here”, she said, and went on to say the rest. ", 3600) + `"}`)},
	{"5MB_base64", call(`{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"` + noise(5<<20) + `"}}]}`)},
}

// BenchmarkScan measures a scan with the table of messages. BenchmarkJSONText measures how
// long jsontext needs to skip the same body.
func BenchmarkScan(b *testing.B) {
	for _, c := range bodies {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			var fields [messagesFields]Value
			for b.Loop() {
				if f := messagesTable.Scan(c.body, fields[:]); f != nil {
					b.Fatal(f)
				}
			}
		})
	}
}

func BenchmarkJSONText(b *testing.B) {
	for _, c := range bodies {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			var buffer bytes.Buffer
			dec := jsontext.NewDecoder(&buffer, jsontext.AllowDuplicateNames(true))
			for b.Loop() {
				buffer = *bytes.NewBuffer(c.body)
				dec.Reset(&buffer, jsontext.AllowDuplicateNames(true))
				if err := dec.SkipValue(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// call returns a messages call with messages, which are JSON.
func call(messages string) []byte {
	return []byte(`{"model":"claude-sonnet-4","max_tokens":1024,"stream":true,"temperature":0.7,` +
		`"system":"You are a helpful assistant.","metadata":{"user_id":"u-1f2e3d"},"messages":[` + messages + `]}`)
}

// chat returns a call of n messages with size bytes of text each.
func chat(n, size int) []byte {
	list := make([]string, n)
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", size/45+1)[:size]
	for i := range list {
		list[i] = fmt.Sprintf(`{"role":%q,"content":%q}`, []string{"user", "assistant"}[i%2], text)
	}
	return call(strings.Join(list, ","))
}

// prose returns a call of n messages of about 460 bytes each, with quotations, line breaks and
// letters outside of ASCII. bench/ sends a similar one.
func prose(n int) []byte {
	const paragraph = `The gateway reads a call once and forwards it; the answer of the backend is ` +
		`returned unchanged. \"No byte is stored,\" said the reviewer, \"without a reason.\"\n` +
		`if (tokens > limit) { return refuse(call); } // naïve, but enough for a café\n`
	list := make([]string, n)
	for i := range list {
		list[i] = `{"role":"user","content":"` + paragraph + paragraph + `"}`
	}
	return call(strings.Join(list, ","))
}

func indented(body []byte) []byte {
	value := jsontext.Value(body)
	if err := value.Indent(); err != nil {
		panic(err)
	}
	return value
}

func noise(size int) string {
	raw := make([]byte, size/4*3)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(raw)
	return base64.StdEncoding.EncodeToString(raw)
}
