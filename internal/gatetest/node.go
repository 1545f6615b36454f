package gatetest

import (
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule"
)

// Node returns the node of the running configuration. It is not held: it lives as
// long as something else does that holds it.
func Node(t testing.TB) *caddymodule.Node {
	t.Helper()
	module, err := caddy.ActiveContext().App(caddymodule.AppID)
	if err != nil {
		t.Fatal(err)
	}
	node, release, err := module.(*caddymodule.App).InForce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release()
	return node
}
