package call

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/forwarding"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
	"github.com/caddy-modelgate/modelgate/internal/ownership"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// This file serves the routes of objects that a vendor stores, and checks who owns the objects that a
// call names; see docs/reference/calls.md#stored-objects.

// objectRoute is what is special about a route of stored objects.
type objectRoute struct {
	kind   ownership.Kind   // of {id}; empty: the path has none
	answer usage.ObjectKind // of the answer itself
	list   bool             // the answer may be a list of items
	stream bool             // the answer may be a stream
	delete bool             // the object is deleted
}

// kindOf has the kinds of objects in answers and bodies.
var kindOf = [...]ownership.Kind{
	usage.ResponseObject: ownership.Response, usage.ItemObject: ownership.Item,
	usage.ConversationObject: ownership.Conversation, usage.ContainerObject: ownership.Container,
}

const conversationsPath = "/v1/conversations"

// objectRoutes are the routes of modelgate_openai for stored objects.
var objectRoutes = []*route{
	object(http.MethodGet, responsesPath+"/{id}", &objectRoute{kind: ownership.Response, stream: true}),
	object(http.MethodDelete, responsesPath+"/{id}", &objectRoute{kind: ownership.Response, delete: true}),
	object(http.MethodPost, responsesPath+"/{id}/cancel", &objectRoute{kind: ownership.Response}),
	object(http.MethodGet, responsesPath+"/{id}/input_items", &objectRoute{kind: ownership.Response, list: true}),
	object(http.MethodPost, conversationsPath, &objectRoute{answer: usage.ConversationObject}),
	object(http.MethodGet, conversationsPath+"/{id}", &objectRoute{kind: ownership.Conversation, answer: usage.ConversationObject}),
	object(http.MethodPost, conversationsPath+"/{id}", &objectRoute{kind: ownership.Conversation, answer: usage.ConversationObject}),
	object(http.MethodDelete, conversationsPath+"/{id}", &objectRoute{kind: ownership.Conversation, answer: usage.ConversationObject, delete: true}),
	object(http.MethodGet, conversationsPath+"/{id}/items", &objectRoute{kind: ownership.Conversation, answer: usage.ItemObject, list: true}),
	object(http.MethodPost, conversationsPath+"/{id}/items", &objectRoute{kind: ownership.Conversation, answer: usage.ItemObject, list: true}),
	object(http.MethodGet, conversationsPath+"/{id}/items/{item}", &objectRoute{kind: ownership.Conversation, answer: usage.ItemObject}),
	object(http.MethodDelete, conversationsPath+"/{id}/items/{item}", &objectRoute{kind: ownership.Conversation, answer: usage.ConversationObject, delete: true}),
}

// object returns a route of stored objects. They are free.
func object(method, path string, o *objectRoute) *route {
	rt := &route{
		Route:  reply.Route{Method: method, Path: path, Dialect: dialect.Responses, Credential: reply.APIKey},
		name:   "response",
		schema: modelcall.NoBody, answer: usage.Response, free: true, object: o,
	}
	if method == http.MethodPost && o.answer == usage.ResponseObject {
		rt.MaxBody = 4 << 10 // usually empty
	}
	if o.answer != usage.ResponseObject {
		rt.name, rt.Dialect = "conversation", dialect.OpenAI
		if method == http.MethodPost {
			rt.schema, rt.MaxBody = modelcall.ItemList, 8<<20
		}
	}
	return rt
}

// vendorState returns the state of the block.
func (b *block) vendorState() caddymodule.VendorState {
	if b.State != "" {
		return b.State
	}
	return b.app.State
}

// owns reports whether the objects of the call have owners.
func (c *call) owns() bool {
	return c.block.vendorState() == caddymodule.StateOwn && (c.route.object != nil || c.route.Dialect == dialect.Responses)
}

// sharesState reports whether the call may name all objects that the vendor stores.
func (c *call) sharesState() bool { return c.block.vendorState() == caddymodule.StateShared }

// gateObject decides whether a request for stored objects is forwarded.
func (c *call) gateObject(w http.ResponseWriter, r *http.Request) (f *fault.Fault) {
	c.body = emptyBody()
	if c.route.MaxBody > 0 && r.ContentLength != 0 {
		if c.body, f = readBody(w, r, c.runtime, c.principal.UserID, c.route.MaxBody, &c.block.app.Limits); f != nil {
			return f
		}
		c.bodyBytes = len(c.body.bytes())
		if f = c.parse(); f != nil {
			return f
		}
	}
	refs := &c.request.References
	if kind := c.route.object.kind; kind != "" {
		*refs = slices.Insert(*refs, 0, modelcall.Reference{Param: "id", Kind: usage.ObjectKind(slices.Index(kindOf[:], kind)), ID: r.PathValue("id")})
	}
	if item := r.PathValue("item"); item != "" {
		*refs = append(*refs, modelcall.Reference{Param: "item", Kind: usage.ItemObject, ID: item})
	}
	var cursors []modelcall.Reference
	c.query, cursors = objectQuery(r.URL.Query())
	*refs = append(*refs, cursors...)
	c.request.Stream = c.route.object.stream && r.URL.Query().Get("stream") == "true"
	if f = c.checkOwner(r.Context()); f != nil {
		return f
	}
	if c.pin != nil {
		c.request.Model = c.pin.Model
	}
	if c.route.object.stream { // reads a response, which may run in the background
		c.reading = c.runtime.Objects.Reading(c.pin)
		if c.reading != nil {
			c.continues = r.URL.Query().Has("starting_after")
		}
	}
	if c.route.object.delete && c.pin.Kind == ownership.Response && !c.runtime.Objects.PollNow(r.Context(), c.pin.ID, c.runtime.PollBackground) {
		return fault.New(fault.Conflict, "the response still runs, or its cost is not known yet: cancel it, and delete it when it has ended")
	}
	return nil
}

// The parameters of a query that pass, and those of them that name items.
var (
	objectParameters = []string{"include", "include[]", "limit", "order", "after", "before", "stream", "starting_after", "include_obfuscation"}
	objectCursors    = []string{"after", "before"}
)

// objectQuery returns the query to send, and the items that it names.
func objectQuery(query url.Values) (passed string, cursors []modelcall.Reference) {
	for name, values := range query {
		if !slices.Contains(objectParameters, name) {
			delete(query, name)
			continue
		}
		for _, id := range values {
			if slices.Contains(objectCursors, name) {
				cursors = append(cursors, modelcall.Reference{Param: name, Kind: usage.ItemObject, ID: id})
			}
		}
	}
	return query.Encode(), cursors
}

// maxReferences bounds the stored objects that one call may name.
const maxReferences = 1000

// checkOwner refuses a call that names objects of others, or that do not exist: the two are not told
// apart. The call is then sent to the backend that has the objects, and only there.
func (c *call) checkOwner(ctx context.Context) *fault.Fault {
	refs := c.request.References
	switch {
	case c.request.Background && c.route.Path != responsesPath:
		return fault.At(fault.InvalidParameter, "background", "`background` is only allowed at %s", responsesPath)
	case len(refs) == 0:
		return nil
	case len(refs) > maxReferences:
		return fault.At(fault.InvalidParameter, refs[maxReferences].Param, "a call names at most %d stored objects", maxReferences)
	}
	ids := make([]ownership.Found, len(refs))
	for i, ref := range refs {
		ids[i] = ownership.Found{ID: ref.ID, Kind: kindOf[ref.Kind]}
	}
	found, err := c.runtime.Objects.Find(ctx, c.principal.UserID, ids...)
	if err != nil {
		return fault.FromStore(err)
	}
	if i := slices.Index(found, nil); i >= 0 {
		return fault.At(fault.NotFound, refs[i].Param, "`%s`: your account has no %s %q here", refs[i].Param, ids[i].Kind, refs[i].ID)
	}
	c.pin = found[0]
	for i, o := range found {
		if o.Backend != c.pin.Backend {
			return fault.At(fault.InvalidParameter, refs[i].Param, "`%s` and `%s` are stored at different backends: a call names objects of one backend", refs[0].Param, refs[i].Param)
		}
		if o.Model != "" { // a conversation may have been made without a call
			if f := c.mayUse(refs[i].Param, o.Model); f != nil {
				return f
			}
		}
	}
	return nil
}

// prepareObject sets what is sent for a request for stored objects, after CleanRequest.
func (c *call) prepareObject(r *http.Request) {
	r.URL.RawQuery = c.query
	if len(c.body.bytes()) == 0 {
		delete(r.Header, "Content-Type")
	}
}

// recordIDs makes the user the owner of the objects whose ids were just read. The caller gets the ids
// only after that. The mutex of the answer is held.
func (a *answer) recordIDs() error {
	if a.meter == nil {
		return nil
	}
	ids := a.meter.TakeIDs()
	if len(ids) == 0 {
		return nil
	}
	c := a.call
	found := make([]ownership.Found, len(ids))
	for i, id := range ids {
		found[i] = ownership.Found{ID: id.ID, Kind: kindOf[id.Kind]}
	}
	origin := ownership.Object{User: c.principal.UserID, Key: c.principal.KeyID, Model: c.request.Model, Backend: c.upstream}
	var err error
	if c.request.Background && !c.submitted && slices.ContainsFunc(found, func(f ownership.Found) bool { return f.Kind == ownership.Response }) {
		err = c.submit(origin, found)
	} else {
		var fresh []string
		fresh, err = c.runtime.Objects.Record(c.lifetime, origin, c.block.app.ObjectsKept(), found)
		for _, f := range found {
			if c.route.object == nil && f.Kind == ownership.Response && slices.Contains(fresh, f.ID) {
				a.stored = f.ID
			}
		}
	}
	if err != nil {
		c.unrecorded = true
		c.block.logger.Error("the owner of a stored object cannot be recorded; the call ends", zap.String("request_id", c.id), zap.Error(err))
	}
	return err
}

// countDelivered counts how much of the text of a background response the caller has read. There is a
// meter, and the mutex of the answer is held.
func (a *answer) countDelivered() {
	c := a.call
	if c.reading == nil && c.job == nil {
		return
	}
	var p ownership.Progress
	p.Bytes, p.Event = a.meter.Through()
	if c.reading != nil {
		c.reading.Deliver(c.lifetime, p)
	} else {
		c.job.Deliver(p)
	}
}

// forgetObject forgets an object that the vendor has deleted. The mutex of the answer is held.
func (a *answer) forgetObject() {
	c := a.call
	if c.route.object == nil || !c.route.object.delete || a.status >= http.StatusMultipleChoices {
		return
	}
	refs := c.request.References
	ref := refs[0]
	if i := slices.IndexFunc(refs, func(ref modelcall.Reference) bool { return ref.Param == "item" }); i >= 0 {
		ref = refs[i]
	}
	if err := c.runtime.Objects.Delete(c.lifetime, ref.ID); err != nil {
		c.block.logger.Error("a deleted object cannot be forgotten", zap.String("request_id", c.id), zap.Error(err))
	}
}

// forgetUnfinished forgets the response of a call that ended before it was complete. The vendor may complete
// it, and the caller could read text that was not charged.
func (c *call) forgetUnfinished() {
	id := c.answer.stored
	if id == "" || c.finished || c.submitted || c.bill.price == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.lifetime), time.Second) // also when the process exits
	defer cancel()
	if err := c.runtime.Objects.Delete(ctx, id); err != nil {
		c.block.logger.Error("an unfinished response cannot be forgotten", zap.String("request_id", c.id), zap.Error(err))
	}
}

// collects reports whether ids are read from the answer. The answer to a deletion has the id that was
// just forgotten.
func (c *call) collects() bool {
	return c.owns() && (c.route.object != nil && !c.route.object.delete || !c.route.free && c.request.Stores(c.members()))
}

// emptyBody returns the body of a request without one.
func emptyBody() *body { return &body{buffer: make([]byte, headroom), start: headroom} }

// newObjectRequest returns a request for a response at the backend, which no caller has made.
func newObjectRequest(ctx context.Context, b *block, id string) (*http.Request, error) {
	path := responsesPath + "/" + url.PathEscape(id)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:0"
	forwarding.CleanRequest(r, b.upstream, true)
	delete(r.Header, "Content-Type")
	return r, nil
}

// pollTimeout bounds one poll.
const pollTimeout = 30 * time.Second
