package console

import (
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

// verifiedMessage is the message of a success; see docs/reference/accounts.md#verification.
const verifiedMessage = "验证成功"

// unverified returns a refusal that does not read as a success, whatever it
// repeats of what was sent: clients look for those words alone.
func unverified(f *fault.Fault) *fault.Fault {
	if !strings.Contains(f.Message+f.Param, verifiedMessage) {
		return f
	}
	plain := *f
	plain.Message, plain.Param = "something that was sent is not taken here, and is not repeated either", ""
	return &plain
}

// verified is the data of a success.
type verified struct {
	Verified bool  `json:"verified"`
	Expires  int64 `json:"expires_at"` // Unix seconds
}

// verify stamps the credential by which the request came: for so long, what asks
// for a step-up may be done by it.
func verify(req *request) error {
	in, f := decode[struct {
		Method string `json:"method"`
		Code   string `json:"code"`
	}](req)
	switch {
	case f != nil:
		return f
	case in.Method == "":
		return missing("method")
	}
	lifetime := time.Duration(req.console.app.Verification.Lifetime)
	expires, renewed, err := req.runtime.Directory.Verify(req.r.Context(), req.account, in.Method, in.Code, lifetime)
	if err != nil {
		return err
	}
	req.renew(renewed)
	return req.send(envelope{Message: verifiedMessage, Data: verified{true, expires}})
}

// protect refuses what a route protects, before anything of the body is read.
func (req *request) protect(rt *route) error {
	if rt.asks != stepUp && rt.asks != stepUpOrPassword {
		return nil
	}
	return req.runtime.Directory.Fresh(req.r.Context(), req.account)
}

// proveAgain refuses a user without a second factor whose password is not this
// one. Of who has a factor, protect has asked more.
func (req *request) proveAgain(password string) error {
	factors, err := req.runtime.Directory.Factors(req.r.Context(), req.account.UserID)
	if err != nil {
		return err
	}
	if shownFactors(factors).Enabled {
		return req.runtime.Directory.Fresh(req.r.Context(), req.account)
	}
	if password == "" {
		return fault.At(fault.MissingParameter, "password", "`password` is required: without a second factor, a new credential needs the password of its user")
	}
	return req.runtime.Directory.ProvePassword(req.r.Context(), req.account, password)
}

// proveChange is proveAgain for a session that changes what a key may do. An access token
// needs nothing more if its user has no second factor.
func (req *request) proveChange(password string) error {
	if req.account.Session {
		return req.proveAgain(password)
	}
	return req.runtime.Directory.Fresh(req.r.Context(), req.account)
}

// proveLately is proveAgain for what makes a new secret of a credential that there
// is already: a log-in a short while ago is proof enough. An access token
// tells of no log-in.
func (req *request) proveLately(password string) error {
	since := req.runtime.Store.Now().Sub(time.Unix(req.account.Opened, 0))
	if password == "" && req.account.Session && since < time.Duration(req.console.app.Verification.Lifetime) {
		return nil
	}
	return req.proveAgain(password)
}

// protectPurchase asks for a step-up where a plan costs more than the operator
// lets pass without. What is not on sale costs nothing: it is not sold either.
// Nor does a key that was used before: the answer of then is given again, or
// none.
func (req *request) protectPurchase(planID int64, key string) error {
	above := req.console.app.Verification.StepUpAbove
	if above == nil {
		return nil
	}
	if plan, found := req.console.app.Plans().Find(planID); !found || plan.Price <= *above {
		return nil
	}
	refused := req.runtime.Directory.Fresh(req.r.Context(), req.account)
	if refused == nil {
		return nil
	}
	used, err := req.runtime.Ledger.IdempotencyKeyUsed(req.r.Context(), ledger.IdempotencyKey{Scope: req.account.UserID, Key: key})
	if err == nil && used {
		return nil
	}
	return refused
}

// protectRenewal does so for a renewal, which costs what its plan costs today.
func (req *request) protectRenewal(subscriptionID int64, key string) error {
	if req.console.app.Verification.StepUpAbove == nil {
		return nil
	}
	subscriptions, err := req.runtime.Billing.Subscriptions(req.r.Context(), req.account.UserID)
	if err != nil {
		return err
	}
	for _, s := range subscriptions {
		if s.ID == subscriptionID {
			return req.protectPurchase(s.PlanID, key)
		}
	}
	return nil // there is none of this number: it is not renewed either
}
