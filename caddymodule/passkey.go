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

// Passkey says for which site passkeys are made. They stay with that name: with
// another rp_id those that there are open nothing.
type Passkey struct {
	// The domain: the host of every origin, or one above it that can be
	// registered. Default: the host of base_url.
	RPID string `json:"rp_id,omitempty"`

	// Where the pages of the site are, as `https://ai.example.com`; http is for
	// localhost alone. Default: base_url.
	Origins []string `json:"origins,omitempty"`
}

// Complete derives missing settings from base_url and checks that browsers would make
// passkeys for the result. If neither names a site that can have passkeys, there are
// none, which is no error.
func (p *Passkey) Complete(baseURL string) error {
	if p.RPID == "" && len(p.Origins) == 0 {
		u, err := url.Parse(baseURL)
		if err != nil || baseURL == "" || checkOrigin(baseURL) != nil || checkRPID(u.Hostname()) != nil {
			return nil
		}
	}
	if len(p.Origins) == 0 {
		if baseURL == "" {
			return errors.New("passkey: there is no origin; name one, or the site by base_url")
		}
		p.Origins = []string{baseURL}
	}
	if p.RPID == "" {
		u, err := url.Parse(p.Origins[0])
		if err != nil {
			return fmt.Errorf("passkey: origin %q cannot be read", p.Origins[0])
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
			return fmt.Errorf("passkey: origin %s is there twice", origin)
		}
		seen[origin] = true
		u, err := url.Parse(origin)
		if err != nil || u.Hostname() != p.RPID && !strings.HasSuffix(u.Hostname(), "."+p.RPID) {
			return fmt.Errorf("passkey: rp_id %s is neither the host of %s nor a domain above it: browsers would refuse it", p.RPID, origin)
		}
	}
	return nil
}

// on reports whether there are passkeys.
func (p *Passkey) on() bool { return p.RPID != "" }

// checkOrigin refuses what no browser calls an origin, in the spelling in which
// browsers send it, and what is not trustworthy to them (W3C Secure Contexts,
// section 3.1): only there have they passkeys.
func checkOrigin(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || text != u.Scheme+"://"+u.Host || text != strings.ToLower(text) {
		return fmt.Errorf("origin %q: it is https:// and a host in lower case, without a path, as https://ai.example.com", text)
	}
	switch local := isLocalhost(u.Hostname()); {
	case u.Scheme != "https" && (u.Scheme != "http" || !local):
		return fmt.Errorf("origin %q: browsers have passkeys for https, and for http://localhost, alone", text)
	case u.Port() == usualPort[u.Scheme]:
		return fmt.Errorf("origin %q: browsers leave the usual port out", text)
	}
	return nil
}

var usualPort = map[string]string{"https": "443", "http": "80"}

// checkRPID refuses what is no domain (WebAuthn, section 5.1.2): an address of
// the network, and a name below which anybody may register.
func checkRPID(id string) error {
	switch {
	case id == "" || id != strings.ToLower(id) || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || strings.Contains(id, "..") || strings.Trim(id, ".-") != id:
		return fmt.Errorf("rp_id %q: it is a domain in lower case, as ai.example.com", id)
	case net.ParseIP(id) != nil:
		return fmt.Errorf("rp_id %q: browsers make no passkeys for addresses; use a name", id)
	case isLocalhost(id):
		return nil
	case !registrable(id):
		return fmt.Errorf("rp_id %q: anybody may register names below it, so browsers refuse it", id)
	}
	return nil
}

func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// registrable reports whether a domain is more than a public suffix such as com or
// github.io, below which everybody can register names. Browsers use the same list for
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
					return d.Errf("origin %s is there twice", origin)
				}
				p.Origins = append(p.Origins, origin)
			}
			return nil
		},
	}, "origin")
}
