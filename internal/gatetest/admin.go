package gatetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// adminClient sends requests to the admin endpoint over its socket.
type adminClient struct{ http.Client }

func newAdminClient(socket string) *adminClient {
	return &adminClient{http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

// Admin sends a request to the admin endpoint, with in as JSON unless it is
// nil, and returns the answer.
func (g *Gate) Admin(t testing.TB, method, path string, in any) (status int, body []byte) {
	t.Helper()
	answer := g.AdminAnswer(t, method, path, in)
	return answer.Status, []byte(answer.Body)
}

// AdminAnswer is Admin for a test that checks the headers of the answer.
func (g *Gate) AdminAnswer(t testing.TB, method, path string, in any) Answer {
	t.Helper()
	var sent []byte
	if in != nil {
		var err error
		if sent, err = json.Marshal(in); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := g.admin.send(t.Context(), method, path, sent)
	if errors.Is(err, io.EOF) {
		// Just after a reload, the server of the previous configuration may
		// accept a connection and close it unread.
		answer, err = g.admin.send(t.Context(), method, path, sent)
	}
	if err != nil {
		t.Fatalf("admin %s %s: %v", method, path, err)
	}
	return answer
}

func (c *adminClient) send(ctx context.Context, method, path string, in []byte) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, bytes.NewReader(in))
	if err != nil {
		return Answer{}, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}, err
}

// Key is an API key and its user.
type Key struct {
	ID     string `json:"id"`
	UserID string `json:"user_id"`
	Secret string `json:"api_key"`
}

var users atomic.Int64

// NewKey creates a user with a key. scope has the limits of the key as in the
// admin API, and may be nil.
func (g *Gate) NewKey(t testing.TB, scope map[string]any) Key {
	t.Helper()
	name := fmt.Sprintf("user-%d", users.Add(1))
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": name}, nil)
	spec := map[string]any{"user": name}
	for word, value := range scope {
		spec[word] = value
	}
	var key Key
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys", spec, &key)
	return key
}

// MustAdmin is Admin for a request that must succeed. It decodes the answer
// into out unless that is nil.
func (g *Gate) MustAdmin(t testing.TB, method, path string, in, out any) {
	t.Helper()
	status, body := g.Admin(t, method, path, in)
	if status != http.StatusOK {
		t.Fatalf("admin %s %s: %d %s", method, path, status, body)
	}
	if out != nil {
		if err := json.Unmarshal(body, out); err != nil {
			t.Fatalf("admin %s %s: %v: %s", method, path, err, body)
		}
	}
}

// FailStore makes the next sync of the store fail, after which the store
// refuses all calls.
func (g *Gate) FailStore(t testing.TB) {
	t.Helper()
	engine, _ := Engine(g.Store)
	engine.Plan(storagetest.SyncFailed)
	if status, body := g.Admin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": "unstored"}); status < 500 {
		t.Fatalf("the store has not failed: %d %s", status, body)
	}
}
