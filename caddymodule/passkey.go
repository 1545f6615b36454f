package caddymodule

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/net/publicsuffix"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/settings"
)

// Passkey configures the site of passkeys. If rp_id changes, existing passkeys no longer
// work.
type Passkey struct {
	// The domain: the host of every origin, or a registrable domain above it.
	// Default: the host of base_url.
	RPID string `json:"rp_id,omitempty"`

	// The origins of the pages of the site, such as `https://ai.example.com`; http is
	// allowed only for localhost. Default: base_url.
	Origins []string `json:"origins,omitempty"`
}

// Complete derives missing settings from base_url. It returns an error if browsers would
// make no passkeys for the result. If there are no settings and base_url cannot have
// passkeys, Complete changes nothing and returns nil.
func (p *Passkey) Complete(baseURL string) error {
	if p.RPID == "" && len(p.Origins) == 0 {
		u, err := url.Parse(baseURL)
		if err != nil || baseURL == "" || checkOrigin(baseURL) != nil || checkRPID(u.Hostname()) != nil {
			return nil
		}
	}
	if len(p.Origins) == 0 {
		if baseURL == "" {
			return errors.New("passkey: origin is missing; set origin or base_url")
		}
		p.Origins = []string{baseURL}
	}
	if p.RPID == "" {
		u, err := url.Parse(p.Origins[0])
		if err != nil {
			return fmt.Errorf("passkey: origin %q: it is not a URL", p.Origins[0])
		}
		p.RPID = u.Hostname()
	}
	return p.validate()
}

func (p *Passkey) validate() error {
	if err := checkRPID(p.RPID); err != nil {
		return fmt.Errorf("passkey: %w", err)
	}
	seen := make(map[string]bool)
	for _, origin := range p.Origins {
		if err := checkOrigin(origin); err != nil {
			return fmt.Errorf("passkey: %w", err)
		}
		if seen[origin] {
			return fmt.Errorf("passkey: origin %s is given twice", origin)
		}
		seen[origin] = true
		u, err := url.Parse(origin)
		if err != nil || u.Hostname() != p.RPID && !strings.HasSuffix(u.Hostname(), "."+p.RPID) {
			return fmt.Errorf("passkey: rp_id %s is neither the host of %s nor a domain above it: browsers would refuse it", p.RPID, origin)
		}
	}
	return nil
}

// on reports whether passkeys are configured.
func (p *Passkey) on() bool { return p.RPID != "" }

// checkOrigin returns an error unless text is an origin in the spelling of browsers, and
// trustworthy (W3C Secure Contexts, section 3.1). Browsers allow passkeys only there.
func checkOrigin(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || text != u.Scheme+"://"+u.Host || text != strings.ToLower(text) {
		return fmt.Errorf("origin %q: it is not an origin; allowed: https:// and a host in lower case, without a path, such as https://ai.example.com", text)
	}
	switch local := isLocalhost(u.Hostname()); {
	case u.Scheme != "https" && (u.Scheme != "http" || !local):
		return fmt.Errorf("origin %q: browsers allow passkeys only for https and for http://localhost", text)
	case u.Port() == defaultPort[u.Scheme]:
		return fmt.Errorf("origin %q: browsers omit the default port; remove it", text)
	}
	return nil
}

var defaultPort = map[string]string{"https": "443", "http": "80"}

// checkRPID returns an error unless id is a domain (WebAuthn, section 5.1.2), and not a
// public suffix below which anyone can register names.
func checkRPID(id string) error {
	switch {
	case id == "" || id != strings.ToLower(id) || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || strings.Contains(id, "..") || strings.Trim(id, ".-") != id:
		return fmt.Errorf("rp_id %q: it is not a domain; allowed: a domain in lower case, such as ai.example.com", id)
	case net.ParseIP(id) != nil:
		return fmt.Errorf("rp_id %q: browsers make no passkeys for addresses; use a name", id)
	case isLocalhost(id):
		return nil
	case !registrable(id):
		return fmt.Errorf("rp_id %q: anyone can register names below it, so browsers refuse it", id)
	}
	return nil
}

func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// registrable reports whether a domain is more than a public suffix such as com or
// github.io, below which anyone can register names. Browsers use the same list for
// passkeys.
func registrable(domain string) bool {
	_, err := publicsuffix.EffectiveTLDPlusOne(domain)
	return err == nil
}

// RelyingParty returns the site of passkeys, or a fault if there are none.
func (a *App) RelyingParty() (identity.RelyingParty, *fault.Fault) {
	if !a.Passkey.on() {
		return identity.RelyingParty{}, fault.New(fault.NotFound, "there are no passkeys here: the operator has configured no site for them (base_url with https and a name, or passkey)")
	}
	return identity.RelyingParty{ID: a.Passkey.RPID, Origins: a.Passkey.Origins, Name: a.Issuer()}, nil
}

// unmarshalCaddyfile reads
//
//	passkey {
//		rp_id  <domain>
//		origin <origin>...
//	}
func (p *Passkey) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Block(d, map[string]settings.Reader{
		"rp_id": settings.Checked(&p.RPID, checkRPID),
		"origin": func(d *caddyfile.Dispenser) error {
			origins := d.RemainingArgs()
			if len(origins) == 0 {
				return d.ArgErr()
			}
			for _, origin := range origins {
				if err := checkOrigin(origin); err != nil {
					return d.WrapErr(err)
				}
				if slices.Contains(p.Origins, origin) {
					return d.Errf("origin %s is given twice", origin)
				}
				p.Origins = append(p.Origins, origin)
			}
			return nil
		},
	}, "origin")
}
