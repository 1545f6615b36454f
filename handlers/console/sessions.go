package console

import (
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/query"
)

// listSessions answers where the user is logged in.
func listSessions(req *request, _ *query.Query, p query.Page) ([]identity.Session, int64, error) {
	sessions, err := req.runtime.Directory.Sessions(req.r.Context(), req.account)
	return cut(sessions, err, p)
}

// endSession ends one session. A session of another user is answered as one that does not
// exist.
func endSession(req *request) (any, error) {
	id := req.r.PathValue("id")
	if err := req.runtime.Directory.EndSession(req.r.Context(), req.account, id); err != nil {
		return nil, err
	}
	if req.account.Session && id == req.account.Credential {
		req.forgetSession()
	}
	return struct{}{}, nil
}

// endSessions ends the other sessions of the user, or all.
func endSessions(req *request) (any, error) {
	q := query.Of(req.r)
	all := q.Word("which", "others", "all") == "all"
	if q.Fault != nil {
		return nil, q.Fault
	}
	secret, err := req.runtime.Directory.EndSessions(req.r.Context(), req.account, all)
	if err != nil {
		return nil, err
	}
	if all && req.account.Session {
		req.forgetSession()
	}
	req.renewSession(secret)
	return struct{}{}, nil
}

// listActivity answers what was done to the account, the latest first.
func listActivity(req *request, _ *query.Query, p query.Page) ([]audit.Event, int64, error) {
	return req.runtime.Directory.Audit.Activity(req.r.Context(), req.account.UserID, p.Skip, p.Limit)
}
