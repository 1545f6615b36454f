package generation_test

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// decoders are the decoders of the three bodies.
var decoders = map[string]func(body []byte) (generation.Request, []string, *fault.Fault){
	"video": generation.DecodeVideo,
	"image": generation.DecodeImage,
	"generations": func(body []byte) (r generation.Request, _ []string, f *fault.Fault) {
		r, f = generation.DecodeGenerations(body)
		return r, nil, f
	},
}

func fingerprint(t *testing.T, form, body string) journal.ID {
	t.Helper()
	r, _, refused := decoders[form]([]byte(body))
	if refused != nil {
		t.Fatalf("%s: %v", body, refused)
	}
	id, err := r.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestAFingerprintIgnoresFormatting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		form, one, other string
		same             bool
	}{
		"white space":                 {"video", `{"model":"m","prompt":"p"}`, "{ \"model\" : \"m\",\n\"prompt\":\"p\" }", true},
		"order":                       {"video", `{"model":"m","prompt":"p"}`, `{"prompt":"p","model":"m"}`, true},
		"escapes":                     {"video", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"\u0070"}`, true},
		"an ignored member":           {"video", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"p","other":1}`, true},
		"null":                        {"image", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"p","seed":null,"ext_info":null}`, true},
		"space in ext_info":           {"image", `{"model":"m","prompt":"p","ext_info":{"a":1}}`, `{"model":"m","prompt":"p","ext_info":{ "a" : 1 }}`, true},
		"order of members":            {"generations", `{"model":"m","prompt":"p","x":1}`, `{"x": 1,"prompt":"p","model":"m"}`, true},
		"model":                       {"video", `{"model":"m","prompt":"p"}`, `{"model":"n","prompt":"p"}`, false},
		"prompt":                      {"video", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"q"}`, false},
		"text moved to another field": {"video", `{"model":"m","prompt":"pq"}`, `{"model":"m","prompt":"p","negative_prompt":"q"}`, false},
		"an input":                    {"video", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"p","inputs":[{"url":"u"}]}`, false},
		"output":                      {"video", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"p","output":{"duration":5}}`, false},
		"an explicit false":           {"video", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"p","output":{"audio":false}}`, false},
		"session":                     {"video", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"p","session_id":"s"}`, false},
		"context":                     {"video", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"p","session_context":"s"}`, false},
		"a seed of zero":              {"image", `{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"p","seed":0}`, false},
		"ext_info":                    {"image", `{"model":"m","prompt":"p","ext_info":{"a":1}}`, `{"model":"m","prompt":"p","ext_info":{"a":2}}`, false},
		"a member passed on":          {"generations", `{"model":"m","prompt":"p","x":1}`, `{"model":"m","prompt":"p","x":2}`, false},
		"the image":                   {"generations", `{"model":"m","image":"AAAA"}`, `{"model":"m","image":"AAAB"}`, false},
	} {
		if same := fingerprint(t, c.form, c.one) == fingerprint(t, c.form, c.other); same != c.same {
			t.Errorf("%s: the same fingerprint: %v, want %v", name, same, c.same)
		}
	}
	both := `{"model":"m","prompt":"p"}`
	if fingerprint(t, "video", both) == fingerprint(t, "image", both) {
		t.Error("a video and an image have the same fingerprint")
	}
}
