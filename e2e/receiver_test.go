package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// receiverSecret signs the callbacks of these tests.
const receiverSecret = "whsec_YSBzZWNyZXQgb2YgdGhlc2UgdGVzdHMsIDMyIGI="

// receiver receives callbacks. It verifies them with the library of Standard
// Webhooks and keeps them.
type receiver struct {
	*backend
	checkpoints *checkpoints

	away func() (status int, link string) // redirect for each callback; nil: it accepts them

	mu  sync.Mutex
	got map[string][]callback // by callback id
}

// callback is a received callback with the bytes that were signed.
type callback struct {
	Type string `json:"type"`
	Data struct {
		resource
		Session string `json:"session_id"`
		Context string `json:"session_context"`
	} `json:"data"`
	text string
}

// newReceiver returns a receiver that reports its checkpoints to c.
func newReceiver(t *testing.T, c *checkpoints) *receiver {
	t.Helper()
	r := &receiver{checkpoints: c, got: map[string][]callback{}}
	r.backend = newBackend(t, r.serve)
	return r
}

// option returns the line of a Caddyfile that sends callbacks here.
func (r *receiver) option() string {
	return "callback {\nurl http://" + r.address() + "/hook\nsecret " + receiverSecret + "\nallow " + r.address() + "\n}\n"
}

func (r *receiver) serve(s *scriptWriter, a *recordedRequest) {
	hook, err := standardwebhooks.NewWebhook(receiverSecret)
	if err == nil {
		err = hook.Verify(a.Body, a.Header)
	}
	c := callback{text: string(a.Body)}
	if err == nil {
		err = json.Unmarshal(a.Body, &c)
	}
	if err != nil {
		r.t.Errorf("a callback %v is not authentic: %v: %s", a.Header, err, a.Body)
		respond(http.StatusBadRequest, "")(s, a)
		return
	}
	id := a.Header.Get(standardwebhooks.HeaderWebhookID)
	r.mu.Lock()
	r.got[id] = append(r.got[id], c)
	r.mu.Unlock()
	if r.away != nil {
		status, link := r.away()
		respond(status, "", "Location", link)(s, a)
		return
	}
	if r.checkpoints.hold(checkpoint{what: "before a callback is acknowledged"}, a) {
		return
	}
	respond(http.StatusOK, "{}")(s, a)
	r.checkpoints.pass(checkpoint{what: "when a callback is acknowledged"})
}

// of returns the ids of the callbacks of a task, and one of the callbacks. All
// of them must be equal.
func (r *receiver) of(task string) (ids []string, one callback) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, all := range r.got {
		if all[0].Data.ID != task {
			continue
		}
		ids = append(ids, id)
		one = all[0]
		if at := slices.IndexFunc(all, func(c callback) bool { return c.text != one.text }); at >= 0 {
			r.t.Errorf("the callback %s is %s, its repetition %s", id, one.text, all[at].text)
		}
	}
	return ids, one
}

// count returns the number of callbacks, and of different ones.
func (r *receiver) count() (all, different int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, same := range r.got {
		all += len(same)
	}
	return all, len(r.got)
}
