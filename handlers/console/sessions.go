package console

import (
	"github.com/caddy-modelgate/modelgate/internal/audit"
)

// listSessions shows where the user is logged in.
func listSessions(v *visit) error {
	q := v.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	sessions, err := v.runtime.Directory.Sessions(v.r.Context(), v.account)
	if err != nil {
		return err
	}
	return v.answer(cut(sessions, p))
}

// endSession ends one of them; one of somebody else is as one that is not there.
func endSession(v *visit) error {
	id := v.r.PathValue("id")
	if err := v.runtime.Directory.EndSession(v.r.Context(), v.account, id); err != nil {
		return err
	}
	if v.account.Session && id == v.account.Credential {
		v.forget()
	}
	return v.answer(struct{}{})
}

// endSessions ends the others, or all with the one that asks.
func endSessions(v *visit) error {
	q := v.query()
	all := q.word("which", "others", "all") == "all"
	if q.fault != nil {
		return q.fault
	}
	secret, err := v.runtime.Directory.EndSessions(v.r.Context(), v.account, all)
	if err != nil {
		return err
	}
	if all && v.account.Session {
		v.forget()
	}
	v.renew(secret)
	return v.answer(struct{}{})
}

// listActivity shows what was done to the account, the latest first.
func listActivity(v *visit) error {
	q := v.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	events, total, err := v.runtime.Directory.Audit.Activity(v.r.Context(), v.account.UserID, p.skip(), p.size)
	if err != nil {
		return err
	}
	return v.answer(listed[audit.Event](events, total, p))
}
