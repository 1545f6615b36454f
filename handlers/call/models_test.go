package call_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func toText(v any) string { return fmt.Sprint(v) }

// offering is a site that names models in every possible way.
const offering = `
	modelgate_messages {
		models listed-b listed-a
		@exact modelgate_model claude-1 claude-* org/model
		reverse_proxy @exact BACKEND
	}
	modelgate_completions {
		models listed-a gpt-5
		reverse_proxy BACKEND
	}
`

func TestTheModelListFollowsTheScopeOfTheKey(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "family E video-sora-2 video-sora-* sora-3", Site: offering})
	for name, c := range map[string]struct {
		scope map[string]any
		want  []string
	}{
		"all":     {nil, []string{"claude-1", "gpt-5", "listed-a", "listed-b", "org/model", "video-sora-2"}},
		"some":    {map[string]any{"models": []string{"listed-*", "claude-1"}}, []string{"claude-1", "listed-a", "listed-b"}},
		"nothing": {map[string]any{"models": []string{"other"}}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			key := g.NewKey(t, c.scope).Secret

			var completionsShape struct {
				Object string
				Data   []struct {
					ID, Object, Owned_By string
					Created              int64
				}
			}
			got := g.Do(t, http.MethodGet, "/v1/models", "Authorization: Bearer "+key, "")
			decode(t, got, &completionsShape)
			var ids []string
			for _, m := range completionsShape.Data {
				ids = append(ids, m.ID)
				if m.Object != "model" || m.Created == 0 || m.Owned_By != "modelgate" {
					t.Errorf("listed %+v", m)
				}
			}
			if completionsShape.Object != "list" || strings.Join(ids, " ") != strings.Join(c.want, " ") {
				t.Errorf("listed %s", got.Body)
			}

			var messagesShape struct {
				Data              []struct{ Type, ID, Display_Name, Created_At string }
				Has_More          *bool
				First_ID, Last_ID *string
			}
			got = g.Do(t, http.MethodGet, "/v1/models", "X-Api-Key: "+key+"\nAnthropic-Version: 2023-06-01", "")
			decode(t, got, &messagesShape)
			ids = nil
			for _, m := range messagesShape.Data {
				ids = append(ids, m.ID)
				if m.Type != "model" || m.Display_Name == "" || !strings.HasSuffix(m.Created_At, "Z") {
					t.Errorf("listed %+v", m)
				}
			}
			if strings.Join(ids, " ") != strings.Join(c.want, " ") || messagesShape.Has_More == nil || *messagesShape.Has_More {
				t.Errorf("listed %s", got.Body)
			}
			if len(c.want) == 0 {
				if messagesShape.First_ID != nil || messagesShape.Last_ID != nil || !strings.Contains(got.Body, `"data":[]`) {
					t.Errorf("listed %s", got.Body)
				}
			} else if *messagesShape.First_ID != c.want[0] || *messagesShape.Last_ID != c.want[len(c.want)-1] {
				t.Errorf("listed %s", got.Body)
			}
		})
	}
}

func decode(t *testing.T, got gatetest.Answer, into any) {
	t.Helper()
	if got.Status != http.StatusOK || got.RequestID() == "" || got.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("answered %d %v %s", got.Status, got.Header, got.Body)
	}
	if err := json.Unmarshal([]byte(got.Body), into); err != nil {
		t.Fatalf("%v: %s", err, got.Body)
	}
}

func TestModelNamesWithSlashesCanBeLookedUp(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: offering})
	all, some := g.NewKey(t, nil).Secret, g.NewKey(t, map[string]any{"models": []string{"gpt-*"}}).Secret
	missing := refusal{404, "not_found_error", fault.ModelNotFound, "there is no model of this name for your key", "model"}
	for target, id := range map[string]string{
		"claude-1": "claude-1", "org/model": "org/model", "org%2Fmodel": "org/model", "org%2fmodel": "org/model", "%63laude-1": "claude-1",
		"Claude-1": "", "claude-2": "", "org//model": "", "org%252Fmodel": "", "claude-1/": "", "../models/claude-1": "", "%2e%2e": "", "claude-1%00": "",
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			conn := g.Dial(t)
			conn.Send(t, "GET /v1/models/"+target+" HTTP/1.1\nHost: gate\nAuthorization: Bearer "+all+"\n\n")
			got := conn.Receive(t, http.MethodGet)
			if id == "" {
				missing.check(t, "", got)
			} else if got.Status != http.StatusOK || !strings.HasPrefix(got.Body, `{"id":"`+id+`","object":"model",`) {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
		})
	}
	got := g.Do(t, http.MethodGet, "/v1/models/claude-1", "Authorization: Bearer "+some, "")
	missing.check(t, "", got) // other keys may use it
	got = g.Do(t, http.MethodGet, "/v1/models/claude-1", "Authorization: Bearer "+some+"\nAnthropic-Version: 2023-06-01", "")
	missing.check(t, messages, got)
}

func TestTheModelListRequiresAKey(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: offering})
	for _, path := range []string{"/v1/models", "/v1/models/claude-1"} {
		unauthorized.check(t, "", g.Do(t, http.MethodGet, path, "", ""))
		unauthorized.check(t, messages, g.Do(t, http.MethodGet, path, "Anthropic-Version: 2023-06-01", ""))
	}
	key := g.NewKey(t, nil).Secret
	if got := g.Do(t, http.MethodHead, "/v1/models", "Authorization: Bearer "+key, ""); got.Status != http.StatusOK || got.Body != "" {
		t.Errorf("HEAD: answered %d %s", got.Status, got.Body)
	}
}
