package console

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// listDeliveries answers the callbacks of all of the user's tasks, newest first.
func listDeliveries(v *visit) error {
	q := v.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	list, total, err := v.runtime.Tasks.CallbackPage(v.r.Context(), v.account.UserID, int(p.skip()), int(p.size))
	if err == nil {
		err = v.hideForeign(list)
	}
	if err != nil {
		return err
	}
	return v.answer(listed(list, int64(total), p))
}

// hideForeign takes from callbacks the addresses that are not those of the user's
// keys today: where a key has none, the operator's may have been called.
func (v *visit) hideForeign(list []task.Callback) error {
	own := make(map[string]string)
	for i := range list {
		d := &list[i]
		if _, known := own[d.Key]; !known {
			address, err := v.callbackURL(v.r.Context(), d.Key)
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
func (v *visit) callbackURL(ctx context.Context, id string) (string, error) {
	key, err := v.runtime.Directory.OwnKey(ctx, v.account, id)
	var f *fault.Fault
	if errors.As(err, &f) && f.Code == fault.NotFound {
		return "", nil
	}
	return key.CallbackURL, err
}

// redeliver sends a callback again. It is named by its own id, which its
// receiver sees, or by its task.
func redeliver(v *visit) error {
	if _, f := decodeMaybe[struct{}](v); f != nil {
		return f
	}
	user, id := v.account.UserID, task.OfCallback(v.r.PathValue("id"))
	delivery, err := v.runtime.Tasks.Redeliver(v.r.Context(), user, task.OfUser(user), id)
	if err != nil {
		return err
	}
	list := []task.Callback{delivery}
	if err := v.hideForeign(list); err != nil {
		return err
	}
	return v.answer(list[0])
}

// testCallback sends an event of no task to the address of a key, and answers
// what came of it. Without an address of the key's own there is nothing to try:
// the operator's is not the user's.
func testCallback(v *visit) error {
	in, f := decode[struct {
		KeyID string `json:"key_id"`
	}](v)
	switch {
	case f != nil:
		return f
	case in.KeyID == "":
		return missing("key_id")
	}
	key, err := v.runtime.Directory.OwnKey(v.r.Context(), v.account, in.KeyID)
	switch {
	case err != nil:
		return err
	case key.CallbackURL == "":
		return fault.At(fault.NotFound, "key_id", "the key %s has no callback address of its own; set its `callback_url`", key.ID)
	}
	delivery, err := v.runtime.Tasks.Test(v.r.Context(), v.account.UserID, v.account.UserID, key.ID)
	if err != nil {
		return err
	}
	return v.answer(delivery)
}
