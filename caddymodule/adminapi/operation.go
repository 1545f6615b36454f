package adminapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Operator is the actor of changes by the admin endpoint in the audit log.
const Operator = "operator"

// call is one request for an operation, with the runtime and the app that serve it.
type call struct {
	*caddymodule.Runtime

	app    *caddymodule.App
	r      *http.Request
	q      *query.Query  // for operations that change nothing
	actor  string        // Operator, or the id of an administrator
	role   identity.Role // of the administrator; empty: the operator
	reason string        // of a change; empty: the operator gave none
	body   []byte        // of a change, without the reason; empty: there is none
}

func (c *call) ctx() context.Context    { return c.r.Context() }
func (c *call) path(name string) string { return c.r.PathValue(name) }

// handler serves a request; the answer is sent as JSON, unless it is a [Stream].
type handler func(*call) (any, error)

// Stream writes an answer that is not JSON.
type Stream func(http.ResponseWriter)

// taking returns a handler that decodes the body of the request.
func taking[T any](handle func(*call, T) (any, error)) handler {
	return func(c *call) (any, error) {
		var in T
		if f := strictjson.Decode(c.body, &in); f != nil {
			return nil, f
		}
		return handle(c, in)
	}
}

// Find returns the operation of a method and a path below /modelgate/. It panics if there is none:
// callers are tables.
func Find(method, path string) *Operation {
	for i := range operations {
		if o := &operations[i]; o.method == method && o.path == path {
			return o
		}
	}
	panic("adminapi: there is no operation " + method + " " + path)
}

// Names returns the methods and paths of all operations, as Find takes them.
func Names() []string {
	names := make([]string, len(operations))
	for i, o := range operations {
		names[i] = o.method + " " + o.path
	}
	return names
}

// HasOwner reports whether the operation acts on the account of a user.
func (o *Operation) HasOwner() bool { return o.owner != nil }

// Run runs the operation for a request whose path has its values set. by is the administrator who
// requests it, whose role the caller has checked; nil: the operator. An administrator must give a
// `reason` for a change: in the body, or in the query of a DELETE.
func (o *Operation) Run(runtime *caddymodule.Runtime, app *caddymodule.App, r *http.Request, by *identity.Account, body []byte) (any, error) {
	c := &call{Runtime: runtime, app: app, r: r, q: query.Of(r), actor: Operator}
	for name, values := range c.q.Values {
		if len(values) > 1 && name != "group" { // a report can have several groups
			c.q.Refuse(name, "is given twice")
		}
	}
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	if o.method != http.MethodGet {
		if err := c.readChange(body, by != nil); err != nil {
			return nil, err
		}
	}
	if by != nil {
		c.actor, c.role = by.UserID, by.Role
		c.r = c.r.WithContext(audit.WithAddress(c.ctx(), by.Address))
		if err := o.checkOwner(c, by); err != nil {
			return nil, err
		}
	}
	handle := o.take
	if handle == nil {
		if handle = o.handle; len(c.body) > 0 {
			handle = taking(func(c *call, _ struct{}) (any, error) { return o.handle(c) })
		}
	}
	answer, err := handle(c)
	if c.q.Fault != nil { // of a parameter that the handler has read
		return nil, c.q.Fault
	}
	return answer, err
}

// readChange separates the reason of a change from its other parameters. From then on, every event
// of the call has the reason.
func (c *call) readChange(body []byte, required bool) error {
	if string(body) == "null" { // no parameters, in JSON
		body = nil
	}
	if c.body = body; len(body) > 0 {
		var members map[string]strictjson.Raw
		if f := strictjson.Decode(body, &members); f != nil {
			return f
		}
		if given, ok := members["reason"]; ok {
			if json.Unmarshal(given, &c.reason) != nil {
				return fault.At(fault.InvalidParameter, "reason", "`reason` must be a string")
			}
			delete(members, "reason")
			var err error
			if c.body, err = json.Marshal(members); err != nil {
				return err
			}
		}
	}
	if c.r.Method == http.MethodDelete {
		if len(body) > 0 {
			return fault.New(fault.InvalidParameter, "DELETE takes no body; send the parameters in the query")
		}
		c.reason = c.q.Values.Get("reason")
	}
	c.r = c.r.WithContext(audit.WithReason(c.ctx(), c.reason))
	return audit.CheckReason(c.reason, required)
}

// checkOwner returns FORBIDDEN if an administrator acts on their own account, or if the user of the
// account has a role and the one who acts is no [identity.Admin].
func (o *Operation) checkOwner(c *call, by *identity.Account) error {
	if o.owner == nil {
		return nil
	}
	id, err := o.owner(c)
	if err != nil || id == "" {
		return err
	}
	user, err := c.Directory.User(c.ctx(), id)
	switch {
	case err != nil:
		return err
	case user.ID == by.UserID:
		return fault.New(fault.Forbidden, "users with a role cannot act on their own account; ask another administrator or the operator")
	case user.Role != "" && by.Role != identity.Admin:
		return fault.New(fault.Forbidden, "%s has a role: only an administrator can act on this account", user.Name)
	}
	return nil
}

// note records an action of an administrator that changes no record, and so has no other event. An
// operator can take it also while the store is read-only.
func (c *call) note(action, detail string) error {
	if c.actor == Operator {
		return nil
	}
	return c.Directory.Audit.Change(c.ctx(), func(storage.Txn) (*audit.Event, error) {
		return &audit.Event{Actor: c.actor, Action: action, Detail: detail}, nil
	})
}

// The functions in the column owner of the table of operations.

func pathUser(c *call) (string, error) { return c.path("user"), nil }

func keyOwner(c *call) (string, error) { return c.Directory.KeyOwner(c.ctx(), c.path("key")) }

func mismatchUser(c *call) (string, error) { return c.Billing.MismatchUser(c.ctx(), c.path("id")) }

func subscriptionOwner(c *call) (string, error) {
	id, err := c.subscription()
	if err != nil {
		return "", err
	}
	return c.Billing.SubscriptionOwner(c.ctx(), id)
}

func taskOwner(c *call) (string, error) {
	t, err := c.Tasks.Get(c.ctx(), task.Anyone, c.path("task"))
	if err != nil {
		return "", err
	}
	return t.Detail.User, nil
}

// bodyUser returns the member user of the body. If it is missing, the handler refuses the body.
func bodyUser(c *call) (string, error) {
	var in struct {
		User string `json:"user"`
	}
	if f := strictjson.Decode(c.body, &in, strictjson.Ignored(nil)); f != nil {
		return "", f
	}
	return in.User, nil
}
