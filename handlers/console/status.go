package console

import (
	"runtime/debug"

	"github.com/caddy-modelgate/modelgate/caddymodule"
)

// status is what everybody may know of the gateway, before he logs in.
type status struct {
	Version      string   `json:"version"`
	Setup        bool     `json:"setup_required"` // the first administrator is still to be made, by POST /api/setup
	Registration bool     `json:"registration"`   // whoever wants may make an account
	Passkeys     bool     `json:"passkeys"`
	RPID         string   `json:"rp_id,omitempty"` // for whom passkeys are made
	Currency     string   `json:"currency"`
	Providers    []string `json:"payment_providers"`
}

func showStatus(req *request) error {
	setup, err := req.runtime.Directory.SetupDue(req.r.Context())
	if err != nil {
		return err
	}
	app := req.console.app
	rp, off := app.RelyingParty()
	return req.answer(status{
		Version: version(), Setup: setup, Registration: app.OpenRegistration(),
		Passkeys: off == nil, RPID: rp.ID,
		Currency: app.Currency, Providers: append([]string{}, app.Payments()...),
	})
}

// version is that of this module in the build: "(devel)" where it was built from
// its sources.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	if build.Main.Path == caddymodule.ModulePath {
		return build.Main.Version
	}
	for _, dependency := range build.Deps {
		if dependency.Path == caddymodule.ModulePath {
			return dependency.Version
		}
	}
	return "(unknown)"
}
