package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// app is the configuration of the tests: a demo payment service, and plans.
const app = `
	base_url http://127.0.0.1:PORT
	registration open
	passkey {
		rp_id localhost
		origin http://localhost:PORT
	}
	payment demo
	topup {
		min 1.00
		max 500.00
	}
	price priced {
		request 0.25
	}
	plan 1 Starter {
		price 9.90
		quota 12.00
		duration 1 month
	}
	plan 2 Trial {
		price 0
		quota 1.00
		duration 7 days
	}
	plan 3 Once {
		price 1.00
		quota 1.00
		duration 1 day
		purchase_limit 1
	}
	plan 4 Old {
		price 1.00
		quota 1.00
		duration 1 day
		disabled
	}
`

// site has a console with high rate limits, and a model.
const site = `
	modelgate_console {
		reads_per_minute    100000
		writes_per_minute   100000
		pages_per_minute    100000
		webhooks_per_minute 100000
		logins_per_minute   100000
	}
	modelgate_completions {
		reverse_proxy BACKEND
	}
`

func start(t *testing.T) *gatetest.Gate {
	t.Helper()
	return gatetest.Start(t, gatetest.Config{App: app, Site: site})
}

// account is a user with an access token.
type account struct {
	gate *gatetest.Gate
	name string
	auth string // header
}

var accounts atomic.Int64

func newAccount(t testing.TB, g *gatetest.Gate) account {
	t.Helper()
	a := account{gate: g, name: fmt.Sprintf("buyer-%d", accounts.Add(1))}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": a.name}, nil)
	var minted struct {
		Token string `json:"access_token"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+a.name+"/token", nil, &minted)
	a.auth = "Authorization: Bearer " + minted.Token
	return a
}

// envelope is the answer of the console.
type envelope struct {
	Success bool            `json:"success"`
	Message string          `json:"message"`
	Code    string          `json:"code"`
	Data    json.RawMessage `json:"data"`
	URL     string          `json:"url"`
}

// ask sends a request, with a JSON body unless it is empty, and returns the
// answer and its envelope.
func (a account) ask(t testing.TB, method, path, body string) (gatetest.Answer, envelope) {
	t.Helper()
	headers := a.auth
	if body != "" {
		headers += "\nContent-Type: application/json"
	}
	return open(t, a.gate.Do(t, method, path, headers, body))
}

func open(t testing.TB, answer gatetest.Answer) (gatetest.Answer, envelope) {
	t.Helper()
	var e envelope
	if err := json.Unmarshal([]byte(answer.Body), &e); err != nil {
		t.Fatalf("%d is no JSON: %v: %q", answer.Status, err, answer.Body)
	}
	if e.Success != (answer.Status == http.StatusOK) || e.Success != (e.Code == "") {
		t.Errorf("%d with %s", answer.Status, answer.Body)
	}
	return answer, e
}

// get sends a GET request that must succeed, and decodes the data into T.
func get[T any](t testing.TB, a account, path string) T {
	t.Helper()
	answer, e := a.ask(t, http.MethodGet, path, "")
	return data[T](t, answer, e)
}

// post sends a POST request that must succeed, and decodes the data into T.
func post[T any](t testing.TB, a account, path, body string) T {
	t.Helper()
	answer, e := a.ask(t, http.MethodPost, path, body)
	return data[T](t, answer, e)
}

func data[T any](t testing.TB, answer gatetest.Answer, e envelope) (into T) {
	t.Helper()
	if !e.Success {
		t.Fatalf("answered %d %s", answer.Status, answer.Body)
	}
	decoder := json.NewDecoder(strings.NewReader(string(e.Data)))
	if err := decoder.Decode(&into); err != nil {
		t.Fatalf("%v: %s", err, e.Data)
	}
	return into
}

// page is a page of a list.
type page[T any] struct {
	Items    []T `json:"items"`
	Total    int `json:"total"`
	Page     int `json:"page"`
	PageSize int `json:"page_size"`
}

// refused checks that an answer is a refusal.
func refused(t testing.TB, what string, answer gatetest.Answer, status int, code string) {
	t.Helper()
	_, e := open(t, answer)
	if answer.Status != status || e.Code != code || e.Message == "" {
		t.Errorf("%s: answered %d %s, want %d %s", what, answer.Status, answer.Body, status, code)
	}
	if !strings.HasPrefix(answer.RequestID(), "req_") || answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s: headers %v", what, answer.Header)
	}
}
