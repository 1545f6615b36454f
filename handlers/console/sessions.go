package console

import "github.com/caddy-modelgate/modelgate/internal/identity"

// listSessions shows where the user is logged in.
func listSessions(req *request) error {
	q := req.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	sessions, err := req.runtime.Directory.Sessions(req.r.Context(), req.account)
	if err != nil {
		return err
	}
	return req.answer(cut(sessions, p))
}

// endSession ends one of them; one of somebody else is as one that is not there.
func endSession(req *request) error {
	id := req.r.PathValue("id")
	if err := req.runtime.Directory.EndSession(req.r.Context(), req.account, id); err != nil {
		return err
	}
	if req.account.Session && id == req.account.Credential {
		req.forget()
	}
	return req.answer(struct{}{})
}

// endSessions ends the others, or all with the one that asks.
func endSessions(req *request) error {
	q := req.query()
	all := q.word("which", "others", "all") == "all"
	if q.fault != nil {
		return q.fault
	}
	secret, err := req.runtime.Directory.EndSessions(req.r.Context(), req.account, all)
	if err != nil {
		return err
	}
	if all && req.account.Session {
		req.forget()
	}
	req.renew(secret)
	return req.answer(struct{}{})
}

// listActivity shows what was done to the account, the latest first.
func listActivity(req *request) error {
	q := req.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	events, total, err := req.runtime.Directory.Activity(req.r.Context(), req.account.UserID, p.skip(), p.size)
	if err != nil {
		return err
	}
	return req.answer(listed[identity.Event](events, total, p))
}
