package tasks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// The paths of submissions.
const (
	videoPath       = "/v1/platform/video"
	imagePath       = "/v1/platform/image"
	tasksPath       = "/v1/platform/tasks"
	generationsPath = "/v1/video/generations"
)

// fixture is a gateway with a mock service as its backend. The names of its models begin with
// the label of their family: video-a-1, image-c-q2.
type fixture struct {
	*gatetest.Gate
	service *mockService
}

// prices has the prices of a second of video and of an image.
const prices = `
	price video-* {
		second 0.10
		second audio 0.20
	}
	price image-* {
		image 0.05
	}
`

// start starts a fixture with more in the configuration of the app. Media is off unless
// more turns it on.
func start(t *testing.T, more string) *fixture {
	t.Helper()
	return startWith(t, configOf(t.Name(), more))
}

func startWith(t *testing.T, config gatetest.Config) *fixture {
	t.Helper()
	w := &fixture{gatetest.Start(t, config), mockServiceOf(t.Name())}
	t.Cleanup(func() { mockServices.Delete(t.Name()) })
	return w
}

func configOf(service, more string) gatetest.Config {
	app := prices + `
		base_url https://gate.example
		family A a-*
		family B b-*
		family C c-*
		family D d-*
		family E e-*
		family F f-*
		backend works {
			models video-a-* video-b-* video-c-* video-d-* video-e-* video-f-* image-* sora-*
			adapter mock "` + service + `"
		}
	`
	if !strings.Contains(more, "media ") {
		app += "media off\n"
	}
	return gatetest.Config{
		App: app + more,
		Site: `
			modelgate_tasks
			modelgate_completions {
				reverse_proxy BACKEND
			}
		`,
	}
}

// fundedKey returns a key of a user with money.
func (w *fixture) fundedKey(t testing.TB) gatetest.Key {
	t.Helper()
	key := w.NewKey(t, nil)
	w.Credit(t, key.UserID, "100")
	return key
}

// object is a JSON object.
type object = map[string]any

// bodyFor returns a body for a path with the required members, changed by members, whose
// names are paths such as "output.duration". A member that is nil is removed.
func bodyFor(path string, members object) string {
	body := object{"model": "video-e-1", "prompt": "a boat"}
	if path == imagePath {
		body["model"] = "image-e-1"
	}
	for name, value := range members {
		into := body
		for {
			head, rest, deeper := strings.Cut(name, ".")
			if !deeper {
				break
			}
			if into[head] == nil {
				into[head] = object{}
			}
			into, name = into[head].(object), rest
		}
		if into[name] = value; value == nil {
			delete(into, name)
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// post sends a body with a key and further headers.
func (w *fixture) post(t testing.TB, key gatetest.Key, path, body string, headers ...string) gatetest.Answer {
	t.Helper()
	return w.Do(t, http.MethodPost, path, strings.Join(append(headers, "Authorization: Bearer "+key.Secret), "\n"), body)
}

// get sends a GET request with a key.
func (w *fixture) get(t testing.TB, key gatetest.Key, path string) gatetest.Answer {
	t.Helper()
	return w.Do(t, http.MethodGet, path, "X-Api-Key: "+key.Secret, "")
}

// resource is a task in either form.
type resource struct {
	ID, Task_ID, Object, Model, Status string
	Progress                           any
	Created_At                         int64
	Completed_At                       *int64
	Result                             *struct {
		URL  string
		URLs []string
		Type string
	}
	URL      string
	URLs     []string
	Format   string
	Metadata object
	Error    *struct{ Code, Reason, Message string }
	Ignored  []string
}

// submit sends a submission that must be accepted.
func (w *fixture) submit(t testing.TB, key gatetest.Key, path, body string, headers ...string) resource {
	t.Helper()
	return decoded[resource](t, w.post(t, key, path, body, headers...))
}

// decoded decodes an answer, which must be a success.
func decoded[T any](t testing.TB, got gatetest.Answer) (out T) {
	t.Helper()
	if got.Status != http.StatusOK || got.Header.Get("Content-Type") != "application/json" || got.RequestID() == "" {
		t.Fatalf("answered %d %v %s", got.Status, got.Header, got.Body)
	}
	if err := json.Unmarshal([]byte(got.Body), &out); err != nil {
		t.Fatalf("%v: %s", err, got.Body)
	}
	return out
}

// finish ends the job of a task at the service, sends the notice, which triggers a poll,
// and waits until the task has ended.
func (w *fixture) finish(t testing.TB, key gatetest.Key, id string, status backends.Status) resource {
	t.Helper()
	w.service.setStatus(id, status)
	w.notify(t, id)
	for deadline := time.Now().Add(gatetest.Timeout); ; {
		got := decoded[resource](t, w.get(t, key, tasksPath+"/"+id+"?wait=5"))
		if got.Completed_At != nil {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("the task is still %+v", got)
		}
	}
}

// notify sends the service's notice about the job of a task.
func (w *fixture) notify(t testing.TB, id string) {
	t.Helper()
	got := w.Do(t, http.MethodPost, "/v1/notices/works", "X-Mock-Secret: "+noticeSecret, fmt.Sprintf(`{"token":%q}`, backends.Token(id)))
	if got.Status != http.StatusOK {
		t.Fatalf("the notice is answered %d %s", got.Status, got.Body)
	}
}

// checkWallet checks the balance of a user and the amount that is held.
func (w *fixture) checkWallet(t testing.TB, key gatetest.Key, balance, held string) {
	t.Helper()
	got := w.Wallet(t, key.UserID)
	want := gatetest.Wallet{Balance: amount(t, balance), Held: amount(t, held)}
	if got.Balance != want.Balance || got.Held != want.Held {
		t.Errorf("the wallet has %v, of which %v is held; want %s and %s", got.Balance, got.Held, balance, held)
	}
}

func amount(t testing.TB, text string) money.Amount {
	t.Helper()
	a, err := money.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// refusal is the expected answer to a refused request.
type refusal struct {
	status int
	code   fault.Code
	param  string
	text   string // part of the message
}

// check compares an answer with a refusal, in the dialect of its path.
func (want refusal) check(t testing.TB, path string, got gatetest.Answer) {
	t.Helper()
	type nested struct {
		Code, Message, Type string
		Param               *string
	}
	var body struct {
		Code, Message string
		Error         nested
	}
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
		t.Fatalf("answered %d %q: %v", got.Status, got.Body, err)
	}
	param := ""
	if body.Error.Param != nil {
		param = *body.Error.Param
	}
	if got.Status != want.status || body.Error.Code != string(want.code) || param != want.param || !strings.Contains(body.Error.Message, want.text) {
		t.Errorf("answered %d %s, want %d %s at %q: %s", got.Status, got.Body, want.status, want.code, want.param, want.text)
	}
	flat := strings.HasPrefix(path, "/v1/platform")
	if flat && (body.Code != body.Error.Code || body.Message != body.Error.Message) || !flat && body.Code != "" || body.Error.Type == "" {
		t.Errorf("%s is not in the dialect of %s", got.Body, path)
	}
	if got.RequestID() == "" || got.Header.Get("Content-Type") != "application/json" || got.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", got.Header)
	}
}
