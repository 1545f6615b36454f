package console

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// listDeliveries answers the callbacks of all of the user's tasks, newest first.
func listDeliveries(req *request, _ *query.Query, p query.Page) ([]task.Callback, int64, error) {
	list, total, err := req.runtime.Tasks.CallbackPage(req.r.Context(), req.account.UserID, int(p.Skip), int(p.Limit))
	if err == nil {
		err = req.hideForeign(list)
	}
	return list, int64(total), err
}

// hideForeign removes the addresses that are not the present ones of the user's keys. The
// callbacks of a key without an address may go to an address of the operator.
func (req *request) hideForeign(list []task.Callback) error {
	own := make(map[string]string)
	for i := range list {
		d := &list[i]
		if _, known := own[d.Key]; !known {
			address, err := req.callbackURL(req.r.Context(), d.Key)
			if err != nil {
				return err
			}
			own[d.Key] = address
		}
		if d.URL != own[d.Key] {
			d.URL = ""
		}
	}
	return nil
}

// callbackURL returns the callback address of a key of the user. It is empty if the key has
// none, or if it is not a key of the user, such as the hidden key or a dropped key.
func (req *request) callbackURL(ctx context.Context, id string) (string, error) {
	key, err := req.runtime.Directory.OwnKey(ctx, req.account, id)
	if f, ok := errors.AsType[*fault.Fault](err); ok && f.Code == fault.NotFound {
		return "", nil
	}
	return key.CallbackURL, err
}

// redeliver sends a callback again. The path has its id, which the receiver sees, or the id
// of its task.
func redeliver(req *request, _ struct{}) (any, error) {
	user, id := req.account.UserID, task.OfCallback(req.r.PathValue("id"))
	delivery, err := req.runtime.Tasks.Redeliver(req.r.Context(), user, task.OfUser(user), id)
	if err != nil {
		return nil, err
	}
	list := []task.Callback{delivery}
	if err := req.hideForeign(list); err != nil {
		return nil, err
	}
	return list[0], nil
}

type callbackTest struct {
	KeyID string `json:"key_id"`
}

func (in callbackTest) check() *fault.Fault { return required("key_id", in.KeyID != "") }

// testCallback sends a test event to the address of a key, and answers the result. It sends
// nothing to an address of the operator.
func testCallback(req *request, in callbackTest) (any, error) {
	key, err := req.runtime.Directory.OwnKey(req.r.Context(), req.account, in.KeyID)
	switch {
	case err != nil:
		return nil, err
	case key.CallbackURL == "":
		return nil, fault.At(fault.NotFound, "key_id", "the key %s has no callback address of its own; set its `callback_url`", key.ID)
	}
	return req.runtime.Tasks.Test(req.r.Context(), req.account.UserID, req.account.UserID, key.ID)
}
