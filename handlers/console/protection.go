package console

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

// protection is a proof that a route requires in addition to the credential. If the user has a
// second factor, every protection requires a recent step-up. Protections differ in when they check
// it, and in what they require of a user without a second factor.
type protection struct {
	name      string // empty: nothing is required
	early     bool   // the step-up is required before the body is read
	checkBody func(req *request, in any) error
}

var (
	nothingMore = &protection{}

	// stepUp prevents a thief of the cookie from taking over the account.
	stepUp = &protection{name: "step-up", early: true}

	// stepUpToEnrol requires the password of a user without a factor. The directory checks it
	// as a part of the enrolment, so that one request counts as one attempt.
	stepUpToEnrol = &protection{name: "step-up or password", early: true}

	// stepUpOrPassword requires the password of a user without a factor. Otherwise a thief of
	// the cookie could make a permanent credential.
	stepUpOrPassword = &protection{"step-up or password", true, func(req *request, in any) error {
		return req.checkPassword(in)
	}}

	// stepUpOrLogIn is for a new secret of an existing credential. A session that logged in
	// recently needs no password. An access token always does.
	stepUpOrLogIn = &protection{"step-up or log-in", true, func(req *request, in any) error {
		age := req.runtime.Store.Now().Sub(time.Unix(req.account.Opened, 0))
		if in.(withPassword).givenPassword() == "" && req.account.Session && age < time.Duration(req.console.app.Verification.Lifetime) {
			return nil
		}
		return req.checkPassword(in)
	}}

	// stepUpForScope is stepUpOrPassword for changes of what a key may do. Without a factor
	// an access token needs no password.
	stepUpForScope = &protection{"step-up or password for the scope", false, func(req *request, in any) error {
		switch change := in.(keyChange); {
		case !change.widens():
			return nil
		case req.account.Session:
			return req.checkPassword(change)
		}
		return req.checkStepUp()
	}}

	// stepUpForEmail is stepUpOrPassword for a change of the address to which codes for a new password
	// are mailed.
	stepUpForEmail = &protection{"step-up or password for the e-mail address", false, func(req *request, in any) error {
		if change := in.(selfChange); change.Email != nil {
			return req.checkPassword(change)
		}
		return nil
	}}

	// stepUpAbove requires a step-up if the price is above step_up_above.
	stepUpAbove = &protection{"step-up above a price", false, func(req *request, in any) error {
		if req.console.app.Verification.StepUpAbove == nil {
			return nil
		}
		planID, idempotencyKey, err := in.(withPlan).plan(req)
		if err != nil {
			return err
		}
		return req.checkPurchase(planID, idempotencyKey)
	}}
)

// checkHead makes the checks that do not need the body.
func (p *protection) checkHead(req *request) error {
	if p.early {
		return req.checkStepUp()
	}
	return nil
}

func (req *request) checkStepUp() error {
	return req.runtime.Directory.Fresh(req.r.Context(), req.account)
}

// proof is the member of a body in which a user without a second factor sends the password.
type proof struct {
	Password string `json:"password"`
}

func (p proof) givenPassword() string { return p.Password }

type withPassword interface{ givenPassword() string }

// checkPassword requires a step-up of a user with a second factor, and the password of a user
// without one.
func (req *request) checkPassword(in any) error {
	factors, err := req.runtime.Directory.Factors(req.r.Context(), req.account.UserID)
	if err != nil {
		return err
	}
	if shownFactors(factors).Enabled {
		return req.checkStepUp()
	}
	password := in.(withPassword).givenPassword()
	if password == "" {
		return fault.At(fault.MissingParameter, "password", "`password` is required: without a second factor, a new credential needs the password of its user")
	}
	return req.runtime.Directory.ProvePassword(req.r.Context(), req.account, password)
}

// withPlan is a body by which a plan is bought. plan returns 0 if there is no such plan.
type withPlan interface {
	plan(req *request) (planID int64, idempotencyKey string, err error)
}

// checkPurchase requires a step-up for a plan above the price. A plan that is not on sale
// needs none, because it cannot be bought. A request with an idempotency key that was used before
// needs none, because it changes nothing.
func (req *request) checkPurchase(planID int64, idempotencyKey string) error {
	plan, found := req.console.app.Plans().Find(planID)
	if !found || plan.Price <= *req.console.app.Verification.StepUpAbove {
		return nil
	}
	refused := req.checkStepUp()
	if refused == nil {
		return nil
	}
	record, err := req.runtime.Ledger.IdempotencyRecord(req.r.Context(), ledger.IdempotencyKey{Scope: req.account.UserID, Key: idempotencyKey})
	if err == nil && record != nil {
		return nil
	}
	return refused
}
