package call_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// unowned are the ids of vendors that no user of the gateway owns, at the places where vendors take
// them: no route here makes such an object. ID stands for one.
var unowned = []struct {
	kind   string
	paths  []string // of objects; no route serves them
	bodies []string // of /v1/responses
	chats  []string // more members of /v1/chat/completions
	others []string // more members of /v1/messages
}{
	{
		"file", []string{"/v1/files/ID", "/v1/files/ID/content"},
		[]string{
			`"input":[{"role":"user","content":[{"type":"input_file","file_id":"ID"}]}]`, `"input":[{"role":"user","content":[{"type":"input_image","file_id":"ID"}]}]`,
			`"input":"x","tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["ID"]}}]`,
			`"input":"x","tools":[{"type":"image_generation","input_image_mask":{"file_id":"ID"}}]`,
		},
		[]string{`"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"ID"}}]}]`},
		[]string{
			`"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"ID"}}]}]`,
			`"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"ID"}]}]`,
		},
	},
	{"vector store", []string{"/v1/vector_stores/ID", "/v1/vector_stores/ID/search"}, []string{`"input":"x","tools":[{"type":"file_search","vector_store_ids":["ID"]}]`}, nil, nil},
	{
		"container", []string{"/v1/containers/ID", "/v1/containers/ID/files/ID/content"},
		[]string{`"input":"x","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"ID"}}]`},
		[]string{`"container":"ID"`}, []string{`"container":"ID"`, `"container":{"id":"ID"}`},
	},
	{"prompt", []string{"/v1/prompts/ID"}, []string{`"input":"x","prompt":{"id":"ID"}`}, []string{`"prompt":{"id":"ID"}`}, nil},
	{
		"skill", []string{"/v1/skills/ID", "/v1/skills/ID/versions/1"},
		[]string{`"input":"x","tools":[{"type":"shell","environment":{"type":"container_auto","skills":[{"type":"skill_reference","skill_id":"ID"}]}}]`},
		nil, []string{`"container":{"skills":[{"type":"custom","skill_id":"ID"}]}`},
	},
	{"voice", []string{"/v1/audio/voices/ID"}, nil, []string{`"audio":{"format":"wav","voice":{"id":"ID"}}`}, nil},
	{"connector", nil, []string{`"input":"x","tools":[{"type":"mcp","server_label":"l","connector_id":"ID"}]`}, nil, nil},
	{"tunnel", nil, []string{`"input":"x","tools":[{"type":"mcp","server_label":"l","tunnel_id":"ID"}]`}, nil, nil},
	{"batch", []string{"/v1/batches/ID", "/v1/batches/ID/cancel", "/v1/messages/batches/ID", "/v1/messages/batches/ID/results"}, nil, nil, nil},
	{"upload", []string{"/v1/uploads/ID", "/v1/uploads/ID/parts", "/v1/uploads/ID/complete"}, nil, nil, nil},
	{"video", []string{"/v1/videos/ID", "/v1/videos/ID/content", "/v1/videos/ID/remix", "/v1/videos/characters/ID"}, nil, nil, nil},
	{"completion", []string{"/v1/chat/completions/ID", "/v1/chat/completions/ID/messages"}, nil, nil, nil},
	{"audio", nil, nil, []string{`"messages":[{"role":"assistant","audio":{"id":"ID"}}]`}, nil},
	{"fallback credit", nil, nil, nil, []string{`"fallback_credit_token":"ID"`}},
	{"thread", nil, nil, nil, []string{`"thread":{"type":"continue","previous_message_id":"ID"}`}},
}

func TestObjectsWithoutAnOwnerAreRefusedAlike(t *testing.T) {
	v := newVendor(t, 0)
	address := strings.TrimPrefix(v.URL, "http://")
	g := gatetest.Start(t, gatetest.Config{
		App:  responsePrices + "\nunpriced allow", // without a price all members pass that name nothing
		Site: "modelgate_messages {\nstate own\nreverse_proxy " + address + "\n}\nmodelgate_openai {\nstate own\nreverse_proxy " + address + "\n}",
	})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "100.00")
	refused := func(kind, method, path, body string, want int) {
		t.Helper()
		var answers []string
		for _, id := range []string{"obj_0123456789", "obj_9876543210"} {
			got := g.Do(t, method, strings.ReplaceAll(path, "ID", id), headersFor(path, key.Secret), strings.ReplaceAll(body, "ID", id))
			if got.Status != want {
				t.Errorf("%s: %s %s %s is answered %d %s, want %d", kind, method, path, body, got.Status, got.Body, want)
			}
			answers = append(answers, strings.NewReplacer(id, "ID", got.RequestID(), "").Replace(string(got.Body)))
		}
		if answers[0] != answers[1] {
			t.Errorf("%s: %s %s: %v", kind, method, path, answers)
		}
	}
	for _, c := range unowned {
		for _, path := range c.paths {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
				refused(c.kind, method, path, "", http.StatusNotFound)
			}
		}
		for path, all := range map[string][]string{responses: c.bodies, chat: c.chats, messages: c.others} {
			for _, more := range all {
				body := fmt.Sprintf(`{"model":"free","max_tokens":5,%s}`, more)
				switch {
				case path == responses:
					body = strings.Replace(body, `"max_tokens":5,`, "", 1)
				case !strings.Contains(more, `"messages"`):
					body = strings.Replace(body, "{", `{"messages":[{"role":"user","content":"x"}],`, 1)
				}
				refused(c.kind, http.MethodPost, path, body, http.StatusBadRequest)
			}
		}
	}
	// The error names only words that help: state own does not make these routes and members belong to a user.
	for body, path := range map[string]string{
		`{"model":"free","max_tokens":5,"messages":[{"role":"user","content":"x"}],"container":"c"}`: messages,
		`{"model":"free","input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}`: responses,
	} {
		if got := respond(t, g, path, key.Secret, body); strings.Contains(got.Body, "state own") || !strings.Contains(got.Body, "the operator can allow it with `state shared`") {
			t.Errorf("%s is answered %d %s", body, got.Status, got.Body)
		}
	}
	if n := v.requests(); n != 0 {
		t.Errorf("the vendor has received %d requests: %v", n, v.seen)
	}
}
