package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/identity"
)

func TestConnectionsUseTheirSessionsInTurn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie("modelgate_session")
		if err != nil || r.Method != http.MethodGet || r.URL.Path != selfPath {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, cookie.Value)
		_, _ = w.Write([]byte(strings.Repeat("x", len(seen)))) // answers differ in size
	}))
	defer server.Close()
	site := target{Address: server.Listener.Addr().String(), Keys: []string{"a", "b", "c", "d", "e"}, Reads: selfPath}
	lines, err := site.dialAll(t.Context(), 2, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		defer line.close()
		for range 4 {
			if err := line.call(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"a", "c", "e", "a", "b", "d", "b", "d"}; !slices.Equal(seen, want) {
		t.Errorf("the sessions are %v, want %v", seen, want)
	}
}

// Sessions of openSessions must be accepted by the gateway.
func TestSeededSessionsAuthenticate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b, err := openTestStore(ctx, filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	c := sessionSeed{Users: 3, Sessions: 30}
	users, err := c.createUsers(ctx, b.store)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := c.openSessions(ctx, b.store, users)
	if err != nil || len(secrets) != 30 {
		t.Fatalf("%d secrets, %v", len(secrets), err)
	}
	directory, err := identity.Open(ctx, b.store, nil, discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	in := make(map[string]int)
	for _, secret := range secrets {
		account, ok, err := directory.AuthenticateSession(ctx, secret)
		if err != nil || !ok {
			t.Fatalf("the session %s is not accepted: %v", secret, err)
		}
		in[account.UserName]++
	}
	if in["bench-0"] != 10 || in["bench-1"] != 10 || in["bench-2"] != 10 {
		t.Errorf("the accepted sessions by user are %v", in)
	}
}
