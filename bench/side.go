package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// side is one of two configurations that are compared: the same build of Caddy
// with a Caddyfile and, if it is the gateway, with accounts.
type side struct {
	name      string
	caddyfile *template.Template
	users     int    // number of users
	keys      int    // number of keys of each user
	entries   int64  // in its ledger at the start
	memory    string // the word `memory` of the store; empty: the default
	free      bool   // calls have no price, and keys no limits
	transport string // of reverse_proxy; empty: Caddy's

	// A side whose load reads the console.
	reads       string      // the path
	logins      int         // users who log in, with one session each
	sessionSeed sessionSeed // or users and sessions in its store at the start
	history     historySeed // or one user with a history

	// A side whose load queries tasks.
	finished int // number of succeeded tasks
	backlog  int // number of unfinished tasks in its store at the start
	running  int // limit of running tasks at the mock service; zero: none
}

// The sides of measures under load.
var (
	bare       = side{name: "bare", caddyfile: bareCaddyfile}
	bareSilent = side{name: "bare-silent", caddyfile: bareSilentCaddyfile}
	gate       = side{name: "gate", caddyfile: gateCaddyfile, users: 1, keys: 1}
	gateOwn    = side{name: "gate-transport", caddyfile: gateCaddyfile, users: 1, keys: 1, transport: "modelgate"}
	free       = side{name: "free", caddyfile: gateCaddyfile, users: 1, keys: 1, free: true}
	gateSmall  = side{name: "gate-small", caddyfile: gateCaddyfile, users: 1, keys: 1, memory: "small"}
	oneWallet  = side{name: "one-wallet", caddyfile: gateCaddyfile, users: 1, keys: 64}
	walletEach = side{name: "wallet-each", caddyfile: gateCaddyfile, users: 64, keys: 1}
)

// bareCaddyfile is Caddy's reverse_proxy and nothing else. All sides log as
// Caddy does by default: at the level INFO, as JSON, to standard error.
var bareCaddyfile = template.Must(template.New("bare").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	storage file_system "{{.Dir}}/caddy"
}

http://{{.Address}} {
	reverse_proxy {{.Backend}}
}
`))

// bareSilentCaddyfile is the same without a log.
var bareSilentCaddyfile = template.Must(template.New("bare-silent").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	storage file_system "{{.Dir}}/caddy"
	log {
		output discard
	}
}

http://{{.Address}} {
	reverse_proxy {{.Backend}}
}
`))

// gateCaddyfile is the same proxy behind the gateway, with a store on disk.
// Calls are charged, unless the side is free: each writes a log line and a
// ledger record.
var gateCaddyfile = template.Must(template.New("gate").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	storage file_system "{{.Dir}}/caddy"
	modelgate {
		storage badger "{{.Dir}}/store"{{with .Memory}} {
			memory {{.}}
		}{{end}}
{{- if not .Free}}
		price claude-* {
			input 3.00
			output 15.00
			cache_read 0.30
			cache_write 3.75
			context 200000
			max_output 64000
		}
{{- end}}
	}
}

http://{{.Address}} {
	modelgate_messages {
		pass_up ` + wantHeader + `
		reverse_proxy {{.Backend}}{{with .Transport}} {
			transport {{.}}
		}{{end}}
	}
	modelgate_completions {
		reverse_proxy {{.Backend}}
	}
}
`))

// bareKey is the key that clients send to the bare proxy, which checks none. It makes their
// requests as long as those of the other side.
var bareKey = "sk-" + strings.Repeat("0", 49)

// balance is the balance of each user and the monthly budget of each key. A run
// cannot spend it.
const balance = "1000000"

// keyLimits are the limits of each key: every kind, far above the load.
var keyLimits = map[string]any{
	"budget": balance, "reset": "month",
	"requests_per_second": 1_000_000, "streams": 1_000_000, "tokens_per_minute": 1_000_000_000,
}

// site is a side that is ready to start.
type site struct {
	side
	dir       string   // of all files of its processes
	keys      []string // valid API keys, or the secrets of sessions if the console is read
	taskPaths []string // paths of tasks
}

// prepare makes the site of a side, or returns the one that this run already
// has.
func (b *bench) prepare(ctx context.Context, s side) (*site, error) {
	if have := b.sites[s.name]; have != nil {
		return have, nil
	}
	at := &site{side: s, dir: filepath.Join(b.dir, s.name)}
	if err := os.Mkdir(at.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	switch {
	case s.entries > 0:
		progress("%s: filling the ledger", s.name)
		err = b.seedLedger(ctx, at)
	case s.sessionSeed.Sessions > 0:
		progress("%s: filling the store", s.name)
		err = b.seedSessions(ctx, at)
	case s.history.Calls > 0:
		progress("%s: filling the store", s.name)
		err = b.seedHistory(ctx, at)
	case s.backlog > 0:
		progress("%s: filling the store", s.name)
		err = b.seedTasks(ctx, at)
	case s.logins > 0:
		err = b.logIn(ctx, at)
	case s.users > 0:
		err = b.openAccounts(ctx, at)
	default:
		at.keys = []string{bareKey}
	}
	switch {
	case err != nil || s.finished == 0:
	case s.users == 0:
		at.taskPaths = []string{tasksPath + "task_OOCUWHTHHFV4AB26LMUFVYCKIP"}
	default:
		err = b.finishTasks(ctx, at)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing %s: %w", s.name, err)
	}
	b.sites[s.name] = at
	return at, nil
}

// openAccounts creates the users of a side with their keys and balances, as an
// operator does.
func (b *bench) openAccounts(ctx context.Context, s *site) error {
	g, err := b.start(ctx, s)
	if err != nil {
		return err
	}
	defer g.stop()
	if err := g.awaitAdmin(ctx); err != nil {
		return err
	}
	for n := range s.users {
		name := userName(n)
		if _, err := g.post(ctx, "/modelgate/users", map[string]any{"name": name}); err != nil {
			return err
		}
		credit := map[string]any{"amount": balance, "reason": "to be spent in a benchmark"}
		if _, err := g.post(ctx, "/modelgate/wallets/"+name+"/credit", credit); err != nil {
			return err
		}
		for range s.side.keys {
			order := map[string]any{"user": name}
			if !s.free {
				order["limits"] = keyLimits
			}
			answer, err := g.post(ctx, "/modelgate/keys", order)
			if err != nil {
				return err
			}
			var key struct {
				Secret string `json:"api_key"`
			}
			if err := json.Unmarshal(answer, &key); err != nil {
				return err
			}
			s.keys = append(s.keys, key.Secret)
		}
	}
	return nil
}

func userName(n int) string { return fmt.Sprintf("bench-%d", n) }

// charged returns an error unless the calls were charged or, if the side is
// free, were not. It proves that the run measured what it claims.
func (g *gateway) charged(ctx context.Context, s side) error {
	answer, err := g.get(ctx, "/modelgate/wallets/"+userName(0))
	if err != nil {
		return err
	}
	var wallet struct {
		Balance string `json:"balance"`
	}
	if err := json.Unmarshal(answer, &wallet); err != nil {
		return err
	}
	switch whole, _, _ := strings.Cut(wallet.Balance, "."); {
	case whole == balance && !s.free:
		return errors.New("the calls were not charged")
	case whole != balance && s.free:
		return errors.New("the calls were charged")
	}
	return nil
}
