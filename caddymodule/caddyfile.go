package caddymodule

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/dustin/go-humanize"

	"github.com/caddy-modelgate/modelgate/internal/identity"
)

func init() {
	httpcaddyfile.RegisterGlobalOption(AppID, parseGlobalOption)
}

func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next() // to the option's name, whose line the error tells
		return nil, d.Err("the modelgate option is there twice")
	}
	var app App
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: AppID, Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile reads the global option:
//
//	modelgate {
//		storage <engine> ...
//		version_header <name>
//		base_url <url>
//		currency <code>
//		unpriced allow|refuse
//		state off|shared
//		uncollected_tolerance <percentage>|off
//		price <pattern> { ... }
//		on_disconnect finish <duration>|cancel
//		charge_failed_input [on|off]
//		family <label> [<model>...] { ... }
//		backend <name> { ... }
//		default_model <model>
//		callback { ... }
//		media { ... }
//		retention { ... }
//		plan <id> <title> { ... }
//		payment <provider> { ... }
//		topup { ... }
//		secret <key>...
//		registration open|closed
//		session { ... }
//		verification { ... }
//		passkey { ... }
//		limits {
//			body_read   <duration>
//			body_memory <size>
//			first_byte  <duration>
//			idle        <duration>
//			ping        <duration>|off
//
//			requests_per_second <count>
//			streams             <count>
//			tokens_per_minute   <count>
//
//			detached          <count>
//			detached_per_user <count>
//
//			count_tokens_per_minute <count>
//			unfinished_tasks <count>
//
//			login_per_user    <count>
//			login_per_address <count>
//		}
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the option's name
	if d.NextArg() {
		return d.ArgErr()
	}
	words := map[string]func(*caddyfile.Dispenser) error{
		"storage":               a.unmarshalStorage,
		"version_header":        checkedArg(&a.VersionHeader, validateHeaderName),
		"base_url":              checkedArg(&a.BaseURL, validateBaseURL),
		"currency":              checkedArg(&a.Currency, validateCurrency),
		"unpriced":              checkedArg(&a.Unpriced, validateUnpriced),
		"state":                 checkedArg(&a.State, validateState),
		"uncollected_tolerance": checkedArg(&a.UncollectedTolerance, validateTolerance),
		"price":                 a.unmarshalPrice,
		"on_disconnect":         onDisconnect(&a.OnDisconnect),
		"charge_failed_input":   onOff(&a.ChargeFailedInput),
		"family":                a.unmarshalFamily,
		"backend":               a.unmarshalBackend,
		"default_model":         checkedArg(&a.DefaultModel, validateDefaultModel),
		"callback":              a.Callback.unmarshalCaddyfile,
		"media":                 a.Media.unmarshalCaddyfile,
		"retention":             a.Retention.unmarshalCaddyfile,
		"plan":                  a.unmarshalPlan,
		"payment":               a.unmarshalPayment(),
		"topup":                 a.TopUp.unmarshalCaddyfile,
		"secret":                a.unmarshalSecret,
		"registration":          checkedArg(&a.Registration, validateRegistration),
		"session":               a.Session.unmarshalCaddyfile,
		"verification":          a.Verification.unmarshalCaddyfile,
		"passkey":               a.Passkey.unmarshalCaddyfile,
		"limits":                a.Limits.unmarshalCaddyfile,
	}
	return Block(d, words, "price", "family", "backend", "plan", "payment", "secret")
}

func (a *App) unmarshalStorage(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	engine := d.Val()
	module, err := caddyfile.UnmarshalModule(d, "modelgate.storage."+engine)
	if err != nil {
		return err
	}
	a.StorageRaw = caddyconfig.JSONModuleObject(module, "engine", engine, nil)
	return nil
}

func (l *Limits) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return Block(d, map[string]func(*caddyfile.Dispenser) error{
		"body_read": func(d *caddyfile.Dispenser) error { return duration(d, &l.BodyRead) },
		"body_memory": func(d *caddyfile.Dispenser) error {
			if err := size(d, &l.BodyMemory); err != nil {
				return err
			}
			return located(d, validateBodyMemory(l.BodyMemory))
		},
		"first_byte": func(d *caddyfile.Dispenser) error { return duration(d, &l.FirstByte) },
		"idle":       func(d *caddyfile.Dispenser) error { return duration(d, &l.Idle) },
		"ping": func(d *caddyfile.Dispenser) error {
			if d.CountRemainingArgs() == 1 && d.NextArg() {
				if d.Val() == "off" {
					l.Ping = -1
					return nil
				}
				d.Prev()
			}
			return duration(d, &l.Ping)
		},
		"requests_per_second":     func(d *caddyfile.Dispenser) error { return count(d, &l.RequestsPerSecond, identity.MaxCalls) },
		"streams":                 func(d *caddyfile.Dispenser) error { return count(d, &l.Streams, identity.MaxCalls) },
		"tokens_per_minute":       func(d *caddyfile.Dispenser) error { return count(d, &l.TokensPerMinute, identity.MaxTokens) },
		"detached":                func(d *caddyfile.Dispenser) error { return count(d, &l.Detached, maxDetached) },
		"detached_per_user":       func(d *caddyfile.Dispenser) error { return count(d, &l.DetachedPerUser, maxDetached) },
		"count_tokens_per_minute": func(d *caddyfile.Dispenser) error { return count(d, &l.CountTokensPerMinute, identity.MaxCalls) },
		"unfinished_tasks":        func(d *caddyfile.Dispenser) error { return count(d, &l.UnfinishedTasks, maxUnfinished) },
		"login_per_user":          func(d *caddyfile.Dispenser) error { return count(d, &l.LoginPerUser, maxLogins) },
		"login_per_address":       func(d *caddyfile.Dispenser) error { return count(d, &l.LoginPerAddress, maxLogins) },
	})
}

// Block reads the lines of a block, each by the function of its first word. A
// word that is unknown is refused with file, line and the words that are allowed, and so
// is one that is there twice, unless it is among rows, the words that have a row in each line.
func Block(d *caddyfile.Dispenser, words map[string]func(*caddyfile.Dispenser) error, rows ...string) error {
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		read, ok := words[word]
		if !ok {
			return d.Errf("unknown word %q; allowed: %s", word, strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		}
		if seen[word] && !slices.Contains(rows, word) {
			return d.Errf("%q is there twice", word)
		}
		seen[word] = true
		if err := read(d); err != nil {
			return err
		}
	}
	return nil
}

// located gives an error the file and line at which d stands.
func located(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

func oneArg(d *caddyfile.Dispenser, into *string) error {
	if !d.Args(into) || d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// checkedArg reads one argument, which check refuses or takes.
func checkedArg(into *string, check func(string) error) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		if err := oneArg(d, into); err != nil {
			return err
		}
		return located(d, check(*into))
	}
}

// onOff reads on or off; the word alone is on.
func onOff(into *bool) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		switch words := d.RemainingArgs(); {
		case len(words) == 0, len(words) == 1 && words[0] == "on":
			*into = true
		case len(words) == 1 && words[0] == "off":
			*into = false
		default:
			return d.Errf("%q: only on or off is allowed here", strings.Join(words, " "))
		}
		return nil
	}
}

func duration(d *caddyfile.Dispenser, into *caddy.Duration) error {
	var word string
	if err := oneArg(d, &word); err != nil {
		return err
	}
	value, err := caddy.ParseDuration(word)
	if err != nil || value < time.Millisecond {
		return d.Errf("%q is not a duration of at least 1ms, such as 90s", word)
	}
	*into = caddy.Duration(value)
	return nil
}

func size(d *caddyfile.Dispenser, into *int64) error {
	var word string
	if err := oneArg(d, &word); err != nil {
		return err
	}
	value, err := humanize.ParseBytes(word)
	if err != nil || value == 0 || value > 1<<50 {
		return d.Errf("%q is not a size, such as 512MiB", word)
	}
	*into = int64(value)
	return nil
}

// Interface guards.
var (
	_ caddyfile.Unmarshaler = (*App)(nil)
	_ json.Marshaler        = json.RawMessage(nil)
)
