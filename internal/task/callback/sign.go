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

// EventID returns the id of the callback of a task, which is the same for all attempts.
func EventID(task string) string { return "evt_" + strings.TrimPrefix(task, "task_") }

// TaskOf returns the id of the task of a callback id. It returns any other text
// unchanged.
func TaskOf(id string) string {
	if suffix, found := strings.CutPrefix(id, "evt_"); found {
		return "task_" + suffix
	}
	return id
}

// Addresses has the callback addresses of API keys.
type Addresses interface {
	// Address returns the address of a key; false if there is none or it is
	// disabled. It is called inside transactions, for example when a task ends.
	Address(r storage.Reader, key string) (Address, bool, error)

	// Disable ends the use of an address whose receiver has answered 410. It does
	// nothing if the key has another address now. It returns the audit event that
	// was written; nil: none.
	Disable(t storage.Txn, now time.Time, key, url string) (*audit.Event, error)
}

// Address is a callback address of an API key.
type Address struct {
	URL string

	// Secrets sign callbacks: the current secret and, during a rotation, the
	// previous one. There is at least one, and none is empty.
	Secrets [][]byte
}

// payload is the body of a callback. It is the same for all attempts.
type payload struct {
	Type      string `json:"type"`      // "task.succeeded", "task.failed" or "callback.test"
	Timestamp int64  `json:"timestamp"` // of the event, Unix seconds
	Data      any    `json:"data"`
}

// eventData is the task with the session fields of its submission.
type eventData struct {
	*record.Task
	SessionID      string `json:"session_id"`
	SessionContext string `json:"session_context"`
}

// bodyOf returns the body of the callback of a task.
func bodyOf(r *record.Record) ([]byte, error) {
	p := payload{"task.failed", r.Completed / 1000, eventData{r.Task(), r.SessionID, r.SessionContext}}
	if r.State == record.Success {
		p.Type = "task.succeeded"
	}
	return json.Marshal(p)
}

var errNoSecret = errors.New("the address has no secret to sign with")

// sign signs a callback according to Standard Webhooks: version 1, HMAC-SHA256 of
// id, time and body, once for each secret. It refuses an empty secret, with which
// anyone could sign.
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
