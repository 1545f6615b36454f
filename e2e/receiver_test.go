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

// A receiver is where callbacks go. It believes what the library of Standard
// Webhooks believes, and keeps it.
type receiver struct {
	*backend
	cue *cue

	away func() (status int, link string) // where it redirects what comes; nil: it takes it

	mu  sync.Mutex
	got map[string][]callback // by their ids
}

// callback is one that has come, with the bytes that were signed.
type callback struct {
	Type string `json:"type"`
	Data struct {
		resource
		Session string `json:"session_id"`
		Context string `json:"session_context"`
	} `json:"data"`
	text string
}

// newReceiver returns a receiver that keeps to the cue.
func newReceiver(t *testing.T, c *cue) *receiver {
	t.Helper()
	r := &receiver{cue: c, got: map[string][]callback{}}
	r.backend = newBackend(t, r.play)
	return r
}

// option is the line of a Caddyfile by which callbacks come here.
func (r *receiver) option() string {
	return "callback {\nurl http://" + r.address() + "/hook\nsecret " + receiverSecret + "\nallow " + r.address() + "\n}\n"
}

func (r *receiver) play(s *stage, a *ask) {
	hook, err := standardwebhooks.NewWebhook(receiverSecret)
	if err == nil {
		err = hook.Verify(a.Body, a.Header)
	}
	c := callback{text: string(a.Body)}
	if err == nil {
		err = json.Unmarshal(a.Body, &c)
	}
	if err != nil {
		r.t.Errorf("a callback %v is not to be believed: %v: %s", a.Header, err, a.Body)
		answers(http.StatusBadRequest, "")(s, a)
		return
	}
	id := a.Header.Get(standardwebhooks.HeaderWebhookID)
	r.mu.Lock()
	r.got[id] = append(r.got[id], c)
	r.mu.Unlock()
	if r.away != nil {
		status, link := r.away()
		answers(status, "", "Location", link)(s, a)
		return
	}
	if r.cue.hold(moment{what: "before a callback is acknowledged"}, a) {
		return
	}
	answers(http.StatusOK, "{}")(s, a)
	r.cue.pass(moment{what: "when a callback is acknowledged"})
}

// of returns the ids under which callbacks of a task came, and one of the
// callbacks; all of them must say the same.
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
			r.t.Errorf("the callback %s says %s, and then %s", id, one.text, all[at].text)
		}
	}
	return ids, one
}

// count is how many callbacks came, and how many different ones.
func (r *receiver) count() (all, different int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, same := range r.got {
		all += len(same)
	}
	return all, len(r.got)
}
