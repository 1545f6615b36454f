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
)

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
// id, time and body, once for each secret. An empty secret would let anybody
// sign, and is refused.
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
