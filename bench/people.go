package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"text/template"
	"time"
)

// selfPath is the path that is read: the account of the caller. The gateway
// does not cache the answer.
const selfPath = "/api/user/self"

// The sides of the measures of the console.
var (
	respond = side{name: "respond", caddyfile: respondCaddyfile, reads: selfPath}
	console = side{name: "console", caddyfile: consoleCaddyfile, reads: selfPath, logins: 64}
)

// selfJSON is an answer with the form and size of the console's.
const selfJSON = `{"success":true,"message":"","data":{"id":"usr_01XFDUDYJgAACzvnptvVoYEL","name":"bench-0","created":1797898858,"currency":"USD",` +
	`"balance":"0.00","held":"0.00","owed":"0.00","preference":"subscription_first","subscriptions":[],` +
	`"factors":{"enabled":false,"totp":false,"backup_codes":0,"passkeys":0}}}`

// respondCaddyfile is Caddy's respond: the minimal work for an answer.
var respondCaddyfile = template.Must(template.New("respond").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	storage file_system "{{.Dir}}/caddy"
}

http://{{.Address}} {
	header Content-Type application/json
	respond ` + selfPath + " `" + selfJSON + "`" + `
}
`))

// consoleCaddyfile is the console with a store on disk. Its limits of log-ins
// and reads are far above the load.
var consoleCaddyfile = template.Must(template.New("console").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	storage file_system "{{.Dir}}/caddy"
	servers {
		trusted_proxies static 127.0.0.1/32
	}
	modelgate {
		base_url http://{{.Address}}
		storage badger "{{.Dir}}/store"
		limits {
			login_per_user    1000
			login_per_address 1000
		}
	}
}

http://{{.Address}} {
	modelgate_console {
		reads_per_minute  1000000
		logins_per_minute 1000000
	}
}
`))

// password is the password of all users.
const password = "of a benchmark, and long enough"

// credentials returns the body of a user's log-in.
func credentials(n int) map[string]any {
	return map[string]any{"username": userName(n), "password": password}
}

// logIn creates users with a password, as an operator does, and logs them in.
func (b *bench) logIn(ctx context.Context, s *site) error {
	g, err := b.start(ctx, s)
	if err != nil {
		return err
	}
	defer g.stop()
	if err := g.awaitAdmin(ctx); err != nil {
		return err
	}
	for n := range s.logins {
		if _, err := g.post(ctx, "/modelgate/users", map[string]any{"name": userName(n), "password": password}); err != nil {
			return err
		}
		session, err := g.logIn(ctx, n)
		if err != nil {
			return err
		}
		s.keys = append(s.keys, session)
	}
	return nil
}

// errBusy means that the gateway already checks as many passwords as it allows.
var errBusy = errors.New("the gateway checks too many passwords")

// logIn logs a user in and returns the secret of the session. The gateway
// limits log-ins per address, so each request names another address in
// X-Forwarded-For, which the gateway trusts here.
func (g *gateway) logIn(ctx context.Context, n int) (session string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.address+"/api/user/login", bytes.NewReader(marshal(credentials(n))))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Forwarded-For", netip.AddrFrom4([4]byte{198, 18, byte(rand.N(256)), byte(rand.N(256))}).String()) //nolint:gosec // the address is not a secret
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer struct{ Code, Message string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("a log-in was answered %s: %w", resp.Status, err)
	}
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "" {
		return "", errBusy
	}
	for _, cookie := range resp.Cookies() {
		if resp.StatusCode == http.StatusOK && cookie.Name == "modelgate_session" {
			return cookie.Value, nil
		}
	}
	return "", fmt.Errorf("a log-in was answered %s: %s %s", resp.Status, answer.Code, answer.Message)
}

// loggingIn is the trial of users who log in repeatedly, few at once and many.
// Each log-in computes a password hash of 19 MiB, so the figure is the growth
// of the gateway's memory.
type loggingIn struct{ Few, Many int }

// afterBusy is the pause of a user after the gateway answered that it is busy.
const afterBusy = 50 * time.Millisecond

// pair implements trial.
func (l loggingIn) pair(ctx context.Context, b *bench, _ string) (p pair, err error) {
	s, err := b.prepare(ctx, console)
	if err != nil {
		return p, err
	}
	for n, concurrency := range [2]int{l.Few, l.Many} {
		if p[n], err = b.logInAtOnce(ctx, s, concurrency); err != nil {
			return p, err
		}
	}
	return p, nil
}

// logInAtOnce lets this many users log in for a while. The growth is the
// maximum of the gateway's memory over its memory at rest, after some other
// traffic.
func (b *bench) logInAtOnce(ctx context.Context, s *site, people int) (p sample, err error) {
	g, err := b.start(ctx, s)
	if err != nil {
		return p, err
	}
	defer g.stop()
	pid := g.cmd.Process.Pid
	reads := order{Job: job{Kind: saturate, Connections: people}}
	warm := &load{order: reads, target: target{g.address, pid, s.keys, s.reads, s.taskPaths}}
	err = warm.slice(ctx, settling)
	warm.closeConnections()
	if err != nil {
		return p, err
	}
	if err := awaitIdle(ctx, pid); err != nil {
		return p, err
	}
	c := &workers{concurrency: people, do: func(n int64) error {
		for {
			_, err := g.logIn(ctx, int(n)%s.logins)
			if !errors.Is(err, errBusy) {
				return err
			}
			if err := pause(ctx, afterBusy); err != nil {
				return err
			}
		}
	}}
	if err := p.watch(pid, func() error { return c.work(b.turns.length() / 2) }); err != nil {
		return p, err
	}
	p.Units, p.Took = c.sample.Units, c.sample.Took
	if p.Units == 0 {
		return p, errors.New("no log-in succeeded")
	}
	return p, nil
}
