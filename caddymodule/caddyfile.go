package caddymodule

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	httpcaddyfile.RegisterGlobalOption(AppID, parseGlobalOption)
}

func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next() // to the option's name, so that the error has its line
		return nil, d.Err("the option modelgate is given twice")
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
//		alias <name> <model>
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
//		mail { ... }
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
	words := map[string]settings.Reader{
		"storage":               a.unmarshalStorage,
		"version_header":        settings.Checked(&a.VersionHeader, validateHeaderName),
		"base_url":              settings.Checked(&a.BaseURL, validateBaseURL),
		"currency":              settings.Checked(&a.Currency, validateCurrency),
		"unpriced":              settings.Checked(&a.Unpriced, validateUnpriced),
		"state":                 a.unmarshalState,
		"uncollected_tolerance": settings.Checked(&a.UncollectedTolerance, validateTolerance),
		"price":                 a.unmarshalPrice,
		"alias":                 a.unmarshalAlias,
		"on_disconnect":         onDisconnect(&a.OnDisconnect),
		"charge_failed_input":   settings.OnOff(&a.ChargeFailedInput),
		"family":                a.unmarshalFamily,
		"backend":               a.unmarshalBackend,
		"default_model":         settings.Checked(&a.DefaultModel, validateDefaultModel),
		"callback":              a.Callback.unmarshalCaddyfile,
		"media":                 a.Media.unmarshalCaddyfile,
		"retention":             a.Retention.unmarshalCaddyfile,
		"plan":                  a.unmarshalPlan,
		"payment":               a.unmarshalPayment(),
		"topup":                 a.TopUp.unmarshalCaddyfile,
		"secret":                a.unmarshalSecret,
		"registration":          settings.Checked(&a.Registration, validateRegistration),
		"session":               a.Session.unmarshalCaddyfile,
		"verification":          a.Verification.unmarshalCaddyfile,
		"passkey":               a.Passkey.unmarshalCaddyfile,
		"mail":                  a.Mail.unmarshalCaddyfile,
		"limits":                a.Limits.unmarshalCaddyfile,
	}
	return settings.Block(d, words, "price", "alias", "family", "backend", "plan", "payment", "secret")
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
	words := map[string]settings.Reader{
		"body_read":   settings.Duration(&l.BodyRead),
		"body_memory": settings.Then(settings.Size(&l.BodyMemory), func() error { return validateBodyMemory(l.BodyMemory) }),
		"first_byte":  settings.Duration(&l.FirstByte),
		"idle":        settings.Duration(&l.Idle),
		"ping": func(d *caddyfile.Dispenser) error {
			at := *d
			if words := d.RemainingArgs(); len(words) == 1 && words[0] == "off" {
				l.Ping = -1
				return nil
			}
			*d = at
			return settings.Duration(&l.Ping)(d)
		},
	}
	for _, limit := range l.counts() {
		words[limit.name] = settings.Count(limit.value, limit.max)
	}
	return settings.Block(d, words)
}

// Interface guards.
var (
	_ caddyfile.Unmarshaler = (*App)(nil)
	_ json.Marshaler        = json.RawMessage(nil)
)
