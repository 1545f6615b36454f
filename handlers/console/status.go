package console

import "github.com/caddy-modelgate/modelgate/caddymodule"

// status is the state of the gateway that every caller may read.
type status struct {
	Version      string   `json:"version"`
	Setup        bool     `json:"setup_required"` // POST /api/setup has to make the first administrator
	Registration bool     `json:"registration"`   // anyone may make an account
	Passkeys     bool     `json:"passkeys"`
	Mail         bool     `json:"mail"`            // users may have an address, and new passwords by mail
	RPID         string   `json:"rp_id,omitempty"` // the relying party of passkeys
	Currency     string   `json:"currency"`
	Providers    []string `json:"payment_providers"`
}

func showStatus(req *request) (any, error) {
	setup, err := req.runtime.Directory.SetupDue(req.r.Context())
	if err != nil {
		return nil, err
	}
	app := req.console.app
	rp, off := app.RelyingParty()
	return status{
		Version: caddymodule.ReadBuild().Version, Setup: setup, Registration: app.OpenRegistration(),
		Passkeys: off == nil, RPID: rp.ID, Mail: app.CheckMail() == nil,
		Currency: app.Currency, Providers: append([]string{}, app.Payments()...),
	}, nil
}
