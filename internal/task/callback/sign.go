package callback

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

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// EventID is the id of the callback of a task, the same at every attempt.
func EventID(task string) string { return "evt_" + strings.TrimPrefix(task, "task_") }

// TaskOf returns the task whose callback has this id. What is no such id is
// returned as it is.
func TaskOf(id string) string {
	if own, is := strings.CutPrefix(id, "evt_"); is {
		return "task_" + own
	}
	return id
}

// Addresses says where the callbacks of API keys go.
type Addresses interface {
	// Address returns that of a key; false when it has none, or none that is not
	// disabled. It is called inside transactions, that of the end of a task
	// among them.
	Address(r storage.Reader, key string) (Address, bool, error)

	// Disable ends the use of an address, whose receiver has said that it is
	// gone. It does nothing when the key has another by now. The event is what was
	// recorded of it; nil: nothing.
	Disable(t storage.Txn, now time.Time, key, url string) (*audit.Event, error)
}

// Address is where callbacks go.
type Address struct {
	URL string

	// Secrets sign callbacks: the one in force and, while it is rotated, the one
	// before. There is at least one, and none is empty.
	Secrets [][]byte
}

// payload is the body of a callback. It is the same at every attempt.
type payload struct {
	Type      string `json:"type"`      // "task.succeeded", "task.failed" or "callback.test"
	Timestamp int64  `json:"timestamp"` // of the event, Unix seconds
	Data      any    `json:"data"`
}

// eventData is the task with what its caller gave to know it by.
type eventData struct {
	*record.Task
	SessionID      string `json:"session_id"`
	SessionContext string `json:"session_context"`
}

// bodyOf is what the callback of a task says.
func bodyOf(r *record.Record) ([]byte, error) {
	p := payload{"task.failed", r.Completed / 1000, eventData{r.Task(), r.SessionID, r.SessionContext}}
	if r.State == record.Success {
		p.Type = "task.succeeded"
	}
	return json.Marshal(p)
}

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
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", timestamp)
	header.Set("Webhook-Signature", strings.Join(signatures, " "))
	return nil
}
