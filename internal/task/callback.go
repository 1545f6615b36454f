package task

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// OfCallback returns the task whose callback has this id. What is no such id is
// returned as it is.
func OfCallback(id string) string {
	if own, is := strings.CutPrefix(id, "evt_"); is {
		return "task_" + own
	}
	return id
}

// changeEvent is change for callbacks.
func changeEvent(t storage.Txn, task string, fn func(v *eventRecord) bool) (*eventRecord, error) {
	before, err := readEvent(t, task)
	if err != nil || before == nil {
		return nil, err
	}
	after := *before
	if !fn(&after) {
		return before, nil
	}
	return &after, events.Put(t, before, &after)
}

// Callback is a callback as its owner and operators see it.
type Callback struct {
	ID       string        `json:"id"` // the webhook-id
	Task     string        `json:"task_id"`
	Key      string        `json:"key_id"`
	State    CallbackState `json:"state"`
	Created  int64         `json:"created_at"`             // Unix seconds
	Attempts int           `json:"attempts"`               // in all
	Last     int64         `json:"last_attempt,omitempty"` // Unix seconds
	Next     int64         `json:"next_attempt,omitempty"` // Unix seconds
	Status   int           `json:"status,omitempty"`       // what the last attempt was answered
	Trouble  string        `json:"trouble,omitempty"`      // why it was not delivered
	URL      string        `json:"url,omitempty"`
}

func (v *eventRecord) callback() Callback {
	return Callback{
		ID: eventID(v.Task), Task: v.Task, Key: v.Key, State: v.State, Created: v.Created / 1000,
		Attempts: v.Sent, Last: v.Last / 1000, Next: v.Due / 1000, Status: v.Status, Trouble: v.Trouble, URL: v.URL,
	}
}

// The types of events.
const (
	eventSucceeded = "task.succeeded"
	eventFailed    = "task.failed"
	eventTest      = "callback.test"
)

// payload is the body of a callback. It is the same at every attempt.
type payload struct {
	Type      string `json:"type"`
	Timestamp int64  `json:"timestamp"` // of the event, Unix seconds
	Data      any    `json:"data"`
}

// eventData is the task with what its caller gave to know it by.
type eventData struct {
	*Task
	SessionID      string `json:"session_id"`
	SessionContext string `json:"session_context"`
}

// body is what the callback of a task says.
func (r *record) body() ([]byte, error) {
	p := payload{eventFailed, r.Completed / 1000, eventData{r.task(), r.SessionID, r.SessionContext}}
	if r.State == Success {
		p.Type = eventSucceeded
	}
	return json.Marshal(p)
}

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

var errNoSecret = errors.New("the address has no secret to sign with")

// sign signs a callback as Standard Webhooks has it: version 1, HMAC-SHA256 over
// id, time and body, once for each secret. An empty secret is refused: everybody
// could sign with it.
func sign(header http.Header, secrets [][]byte, id string, at time.Time, body []byte) error {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		if len(secret) == 0 {
			return errNoSecret
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if len(signatures) == 0 {
		return errNoSecret
	}
	header.Set(headerID, id)
	header.Set(headerTimestamp, timestamp)
	header.Set(headerSignature, strings.Join(signatures, " "))
	return nil
}
