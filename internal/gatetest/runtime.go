package gatetest

import (
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule"
)

// Runtime returns the runtime of the running configuration. It does not hold a
// reference, so the runtime ends with its other users.
func Runtime(t testing.TB) *caddymodule.Runtime {
	t.Helper()
	module, err := caddy.ActiveContext().App(caddymodule.AppID)
	if err != nil {
		t.Fatal(err)
	}
	runtime, release, err := module.(*caddymodule.App).InForce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release()
	return runtime
}
