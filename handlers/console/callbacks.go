package console

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// listDeliveries answers the callbacks of all of the user's tasks, newest first.
func listDeliveries(req *request) error {
	q := req.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	list, total, err := req.runtime.Tasks.DeliveryPage(req.r.Context(), req.account.UserID, int(p.skip()), int(p.size))
	if err == nil {
		err = req.hideForeign(list)
	}
	if err != nil {
		return err
	}
	return req.answer(listed(list, int64(total), p))
}

// hideForeign takes from callbacks the addresses that are not those of the user's
// keys today: where a key has none, the operator's may have been called.
func (req *request) hideForeign(list []task.Delivery) error {
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

// callbackURL returns the address of a key of the user; empty when it has none,
// or he has no such key: the hidden one is not among his, nor one that was
// dropped.
func (req *request) callbackURL(ctx context.Context, id string) (string, error) {
	key, err := req.runtime.Directory.OwnKey(ctx, req.account, id)
	var f *fault.Fault
	if errors.As(err, &f) && f.Code == fault.NotFound {
		return "", nil
	}
	return key.CallbackURL, err
}

// redeliver sends a callback again. It is named by its own id, which its
// receiver sees, or by its task.
func redeliver(req *request) error {
	if _, f := decodeMaybe[struct{}](req); f != nil {
		return f
	}
	user, id := req.account.UserID, task.OfCallback(req.r.PathValue("id"))
	delivery, err := req.runtime.Tasks.Redeliver(req.r.Context(), user, task.OfUser(user), id)
	if err != nil {
		return err
	}
	list := []task.Delivery{delivery}
	if err := req.hideForeign(list); err != nil {
		return err
	}
	return req.answer(list[0])
}

// testCallback sends an event of no task to the address of a key, and answers
// what came of it. Without an address of the key's own there is nothing to try:
// the operator's is not the user's.
func testCallback(req *request) error {
	in, f := decode[struct {
		KeyID string `json:"key_id"`
	}](req)
	switch {
	case f != nil:
		return f
	case in.KeyID == "":
		return missing("key_id")
	}
	key, err := req.runtime.Directory.OwnKey(req.r.Context(), req.account, in.KeyID)
	switch {
	case err != nil:
		return err
	case key.CallbackURL == "":
		return fault.At(fault.NotFound, "key_id", "the key %s has no callback address of its own; set its `callback_url`", key.ID)
	}
	delivery, err := req.runtime.Tasks.Test(req.r.Context(), req.account.UserID, req.account.UserID, key.ID)
	if err != nil {
		return err
	}
	return req.answer(delivery)
}
