package caddymodule

import (
	"context"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/internal/ownership"
	"github.com/caddy-modelgate/modelgate/settings"
)

// VendorState says whether calls may name objects that a vendor stores for the operator's account.
type VendorState string

// The values of state.
const (
	StateOff    VendorState = "off"    // no call may
	StateOwn    VendorState = "own"    // only the user whose call made the object
	StateShared VendorState = "shared" // all users
)

// The default of state_kept, which is how long vendors keep a response, and its least value.
const (
	defaultStateKept = 30 * 24 * time.Hour
	minStateKept     = time.Hour
)

// Validate returns an error for an unknown word. An empty one is that of the app.
func (s VendorState) Validate() error {
	switch s {
	case "", StateOff, StateOwn, StateShared:
		return nil
	}
	return fmt.Errorf("state: %q is not supported; allowed: off, own, shared", string(s))
}

// unmarshalState reads
//
//	state off|own|shared
//	state own <duration>
func (a *App) unmarshalState(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) > 2 {
		return d.ArgErr()
	}
	a.State = VendorState(args[0])
	if err := a.State.Validate(); err != nil {
		return d.WrapErr(err)
	}
	if len(args) == 1 {
		return nil
	}
	kept, err := caddy.ParseDuration(args[1])
	if err != nil {
		return d.WrapErr(fmt.Errorf("state own: %w", err))
	}
	a.StateKept = caddy.Duration(kept)
	return settings.Located(d, a.validateState())
}

func (a *App) validateState() error {
	if a.StateKept != 0 && (a.State != StateOwn || time.Duration(a.StateKept) < minStateKept) {
		return fmt.Errorf("state: %v is not supported; allowed: at least %v, after own", time.Duration(a.StateKept), minStateKept)
	}
	return a.State.Validate()
}

// ObjectsKept returns how long a user owns an object at a vendor.
func (a *App) ObjectsKept() time.Duration {
	if a.StateKept == 0 {
		return defaultStateKept
	}
	return time.Duration(a.StateKept)
}

// PollBackground adds a function that polls background responses at the backends of one block. Blocks
// call it while they are provisioned.
func (a *App) PollBackground(poll ownership.Poller) {
	a.pollers.Lock()
	defer a.pollers.Unlock()
	a.pollers.list = append(a.pollers.list, poll)
}

// PollBackground asks the backends of the live configuration for the state of a background response. If
// several blocks have its backend, with other credentials for instance, the one that knows most counts.
func (rt *Runtime) PollBackground(ctx context.Context, r *ownership.Running) (best ownership.State, result ownership.Result) {
	a := rt.adopted.Load()
	if a == nil {
		return ownership.NotHere, result
	}
	a.pollers.Lock()
	list := a.pollers.list
	a.pollers.Unlock()
	for _, poll := range list {
		if state, found := poll(ctx, r); state > best {
			best, result = state, found
		}
		if best >= ownership.Pending {
			break
		}
	}
	return best, result
}
