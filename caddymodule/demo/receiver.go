package demo

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// receiver is a server on the loopback interface for the demo's callbacks. It verifies
// each callback, as a receiver should, and writes a line for it.
type receiver struct {
	listener net.Listener
	lines    io.Writer
	keys     atomic.Pointer[[][]byte] // of valid signatures; nil: refuse every callback
}

// newReceiver starts a receiver at a free port. It runs until the process ends.
func newReceiver(lines io.Writer) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{listener: listener, lines: lines}
	server := &http.Server{Handler: r, ReadTimeout: callbackTimeout, WriteTimeout: callbackTimeout}
	go func() { _ = server.Serve(listener) }() // it ends with the process
	return r, nil
}

// callbackTimeout bounds how long a callback may take to arrive.
const callbackTimeout = 10 * time.Second

// address returns host:port of the receiver.
func (r *receiver) address() string { return r.listener.Addr().String() }

// url returns the URL for callbacks.
func (r *receiver) url() string { return "http://" + r.address() + path }

const path = "/modelgate-demo/callbacks"

// register sets the callback URL of a user's keys to the receiver, and renews their
// secrets, so that the receiver knows them. It does not change keys with another receiver.
func (r *receiver) register(ctx context.Context, directory *identity.Directory, account *identity.Account) error {
	keys, err := directory.OwnKeys(ctx, account)
	if err != nil {
		return err
	}
	var known [][]byte
	url := r.url()
	for _, key := range keys {
		if !strings.HasSuffix(key.CallbackURL, path) || key.Revoked != 0 {
			continue
		}
		_, secret, err := directory.RenewCallbackSecret(ctx, account, key.ID)
		if err != nil {
			return err
		}
		signingKey, err := identity.ParseCallbackSecret(secret.Reveal())
		if err != nil {
			return err
		}
		known = append(known, signingKey)
		r.keys.Store(&known)
		if _, err := directory.ChangeOwnKey(ctx, account, key.ID, identity.KeyChange{CallbackURL: &url}); err != nil {
			return err
		}
	}
	return nil
}

// maxCallback bounds the body of a callback, in bytes.
const maxCallback = 1 << 20

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxCallback))
	if err == nil {
		err = r.verify(req.Header, body, time.Now())
	}
	if err != nil {
		r.print("refused: " + err.Error())
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.print(summary(body))
	w.WriteHeader(http.StatusNoContent)
}

// print writes the line of a callback.
func (r *receiver) print(what string) {
	fmt.Fprintf(r.lines, "%s  callback  %s\n", time.Now().Format(time.TimeOnly), visible(what))
}

// summary returns the text of the line of a verified callback.
func summary(body []byte) string {
	var event struct {
		Type string `json:"type"`
		Data struct {
			ID    string `json:"task_id"`
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return "verified, but not readable: " + err.Error()
	}
	return strings.TrimSpace("verified  " + event.Type + "  " + event.Data.ID + "  " + event.Data.Error.Message)
}

// tolerance bounds the age of a callback, so that a copy cannot be replayed later.
const tolerance = 5 * time.Minute

// verify returns an error unless a known secret has signed the callback. Standard Webhooks
// signs id, time and body; one valid signature is enough.
func (r *receiver) verify(header http.Header, body []byte, now time.Time) error {
	keys := r.keys.Load()
	if keys == nil {
		return errors.New("the receiver has no secret yet to check the signature")
	}
	id, timestamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return fmt.Errorf("Webhook-Timestamp %q is not a current time in Unix seconds", timestamp)
	}
	for _, key := range *keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
		want := mac.Sum(nil)
		for signature := range strings.FieldsSeq(header.Get("Webhook-Signature")) {
			coded, isV1 := strings.CutPrefix(signature, "v1,")
			if given, err := base64.StdEncoding.DecodeString(coded); isV1 && err == nil && hmac.Equal(given, want) {
				return nil
			}
		}
	}
	return errors.New("the signature is wrong")
}
