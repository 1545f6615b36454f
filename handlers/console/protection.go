package console

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

// protection is what a route demands beyond the credential. If the user has a second
// factor, all of them demand a recent step-up; they differ in when they do so, and in what
// they demand of a user without a second factor.
type protection struct {
	name      string // empty: nothing is demanded
	early     bool   // the step-up is demanded before the body is read
	checkBody func(req *request, in any) error
}

var (
	nothingMore = &protection{}

	// stepUp keeps a stolen cookie from taking the account over.
	stepUp = &protection{name: "step-up", early: true}

	// stepUpToEnrol demands the password, too, of a user without a factor. The directory
	// checks it in the steps of the enrolment, so that one request is one attempt.
	stepUpToEnrol = &protection{name: "step-up or password", early: true}

	// stepUpOrPassword demands the password of a user without a factor. Else a stolen cookie
	// would become a credential that lasts.
	stepUpOrPassword = &protection{"step-up or password", true, func(req *request, in any) error {
		return req.checkPassword(in)
	}}

	// stepUpOrLogIn is for a new secret of an existing credential. The password is not
	// demanded of a session that logged in recently. An access token has no log-in.
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

	// stepUpAbove demands a step-up if the price is above step_up_above.
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

// checkHead demands what can be demanded before the body is read.
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

// checkPassword demands a step-up of a user with a second factor, and the password of one
// without.
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

// checkPurchase demands a step-up for a plan above the price. A plan that is not on sale
// needs none, because it is not sold. Nor does an idempotency key that was used before: the
// request changes nothing.
func (req *request) checkPurchase(planID int64, idempotencyKey string) error {
	plan, found := req.console.app.Plans().Find(planID)
	if !found || plan.Price <= *req.console.app.Verification.StepUpAbove {
		return nil
	}
	refused := req.checkStepUp()
	if refused == nil {
		return nil
	}
	used, err := req.runtime.Ledger.IdempotencyKeyUsed(req.r.Context(), ledger.IdempotencyKey{Scope: req.account.UserID, Key: idempotencyKey})
	if err == nil && used {
		return nil
	}
	return refused
}
