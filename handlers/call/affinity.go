package call

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() {
	caddy.RegisterModule(Affinity{})
}

// Affinity is a load balancing policy that sends related calls to the same upstream, because its
// prompt cache has what they have in common. It is for a reverse_proxy within the block of a model
// call. Elsewhere it selects at random.
//
// It uses rendezvous hashing. If an upstream is not available, only its calls go to others. A retry of
// a call goes to the next upstream in the order of that call.
type Affinity struct {
	// What related calls have in common: `prompt_cache_key`, the member of the body, and
	// the API key if a body has none; `key`, the API key; or `user`, the user of the API
	// key. A `prompt_cache_key` of two users is not related. Default: `prompt_cache_key`.
	By string `json:"by,omitempty"`
}

// The values of by.
const (
	byCacheKey = "prompt_cache_key"
	byKey      = "key"
	byUser     = "user"
)

// CaddyModule returns the Caddy module information.
func (Affinity) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID: "http.reverse_proxy.selection_policies.modelgate_affinity", New: func() caddy.Module { return new(Affinity) },
	}
}

// Validate returns an error for an unknown word.
func (a Affinity) Validate() error {
	if words := []string{"", byCacheKey, byKey, byUser}; !slices.Contains(words, a.By) {
		return fmt.Errorf("modelgate_affinity: %q is not supported; allowed: %s", a.By, strings.Join(words[1:], ", "))
	}
	return nil
}

// UnmarshalCaddyfile reads
//
//	modelgate_affinity [prompt_cache_key|key|user]
func (a *Affinity) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of the policy
	if d.NextArg() {
		a.By = d.Val()
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	if err := a.Validate(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// Select implements reverseproxy.Selector.
func (a Affinity) Select(pool reverseproxy.UpstreamPool, r *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	c, ok := caddyhttp.GetVar(r.Context(), callVar).(*call)
	if !ok {
		return reverseproxy.RandomSelection{}.Select(pool, r, w)
	}
	hash := c.affinity(a.By)
	best := func(skip []string) (chosen *reverseproxy.Upstream) {
		var highest uint64
		for _, upstream := range pool {
			name := upstream.String()
			if !upstream.Available() || slices.Contains(skip, name) {
				continue
			}
			if score := rendezvous(hash, name); chosen == nil || score > highest {
				chosen, highest = upstream, score
			}
		}
		return chosen
	}
	chosen := best(c.selected)
	if chosen == nil { // each available one was tried
		c.selected = c.selected[:0]
		chosen = best(nil)
	}
	if chosen != nil {
		c.selected = append(c.selected, chosen.String())
	}
	return chosen
}

// affinity returns the hash of what the call has in common with others.
func (c *call) affinity(by string) uint64 {
	switch {
	case by == byUser:
		return hashOf("user", c.principal.UserID)
	case by == byKey || c.cacheKey == "":
		return hashOf("key", c.principal.KeyID)
	}
	return hashOf("cache", c.principal.UserID, c.cacheKey)
}

// hashOf returns a hash of texts that is the same on each machine and in each version.
func hashOf(texts ...string) uint64 {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return binary.BigEndian.Uint64(sum[:])
}

// rendezvous returns the score of a name for a hash. The name with the highest score is chosen, so a
// new name takes an equal part of the hashes of each other one, and nothing else moves.
func rendezvous(hash uint64, name string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	score := uint64(offset)
	for i := range len(name) {
		score = (score ^ uint64(name[i])) * prime
	}
	score ^= hash
	score = (score ^ score>>30) * 0xbf58476d1ce4e5b9 // the finalizer of SplitMix64
	score = (score ^ score>>27) * 0x94d049bb133111eb
	return score ^ score>>31
}

// maxSlots is the maximum number of slots of a placeholder.
const maxSlots = 1000

// slotOf returns the slot of id among count slots, from 0. Count is a decimal number.
func slotOf(id, count string) (any, bool) {
	slots, err := strconv.Atoi(count)
	if err != nil || slots < 1 || slots > maxSlots {
		return nil, false
	}
	hash := hashOf("slot", id)
	best, highest := 0, uint64(0)
	for i := range slots {
		if score := rendezvous(hash, strconv.Itoa(i)); score > highest {
			best, highest = i, score
		}
	}
	return best, true
}

// usesAffinity reports whether a reverse_proxy of routes has the policy [Affinity].
func usesAffinity(routes caddyhttp.RouteList) (uses bool) {
	eachHandler(routes, func(handler caddyhttp.MiddlewareHandler) {
		if h, ok := handler.(*reverseproxy.Handler); ok && h.LoadBalancing != nil {
			_, affine := h.LoadBalancing.SelectionPolicy.(*Affinity)
			uses = uses || affine
		}
	})
	return uses
}

// Interface guards.
var (
	_ reverseproxy.Selector = (*Affinity)(nil)
	_ caddy.Validator       = (*Affinity)(nil)
	_ caddyfile.Unmarshaler = (*Affinity)(nil)
)
