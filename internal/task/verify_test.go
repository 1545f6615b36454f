package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// four are tasks in four states: waiting, running, successful and failed.
type four struct{ waiting, running, success, failed string }

// fourTasks creates four tasks in different states, each with all optional records.
func (f *fixture) fourTasks() (ids four) {
	f.t.Helper()
	f.listen()
	submit := func(name string) string {
		return f.mustSubmit(with(func(s *Submission) { s.SessionID, s.IdempotencyKey = "s-"+name, "k-"+name })).ID
	}
	ids.success, ids.failed = submit("success"), submit("failed")
	f.service.setStatus(ids.success, succeeded(1))
	f.service.setStatus(ids.failed, failed(backends.ModelFailed))
	f.until(ids.success, record.Success, time.Minute)
	f.until(ids.failed, record.Failed, time.Minute)
	ids.running = submit("running")
	f.until(ids.running, record.InProgress, time.Minute)
	if err := f.Drain(context.Background(), "root", "works"); err != nil {
		f.t.Fatal(err)
	}
	ids.waiting = submit("waiting")
	synctest.Wait()
	return ids
}

// damage changes the record of a task behind the engine's back.
func damage(id func(ids four) string, change func(r *record.Record)) func(t storage.Txn, ids four) error {
	return func(t storage.Txn, ids four) error {
		rec, err := record.Tasks.Get(t, id(ids))
		if err != nil || rec == nil {
			return errors.Join(err, errors.New("no such task"))
		}
		change(rec)
		return t.Set(storage.Key(record.TaskPrefix, rec.ID), storage.EncodeRecord(rec), time.Time{})
	}
}

func damageEvent(id func(ids four) string, change func(v *record.Event)) func(t storage.Txn, ids four) error {
	return func(t storage.Txn, ids four) error {
		v, err := record.Events.Get(t, id(ids))
		if err != nil || v == nil {
			return errors.Join(err, errors.New("no such callback"))
		}
		change(v)
		return storage.SetRecord(t, storage.Key(record.EventPrefix, v.Task), v)
	}
}

// lose deletes an index key or another record of a task.
func lose(id func(ids four) string, prefix string) func(t storage.Txn, ids four) error {
	return func(t storage.Txn, ids four) error {
		rec, err := record.Tasks.Get(t, id(ids))
		if err != nil {
			return err
		}
		names := []string{rec.ID, rec.Backend, rec.Key, record.HashOf(rec.SessionID), rec.IdempotencyHash} // what its keys end with
		var found []byte
		lo, hi := storage.Below(prefix)
		if err := t.Scan(lo, hi, func(key, _ []byte) bool {
			if slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(string(key), "/"+name) }) {
				found = bytes.Clone(key)
			}
			return found == nil
		}); err != nil {
			return err
		}
		if found != nil {
			return t.Delete(found)
		}
		return errors.New("it has no key below " + prefix)
	}
}

// plant sets a key that leads nowhere.
func plant(fields ...any) func(t storage.Txn, ids four) error {
	return func(t storage.Txn, _ four) error { return t.Set(storage.Key(fields...), nil, time.Time{}) }
}

func atWaiting(ids four) string { return ids.waiting }
func atRunning(ids four) string { return ids.running }
func atSuccess(ids four) string { return ids.success }
func atFailed(ids four) string  { return ids.failed }

func TestVerifyFindsInconsistencies(t *testing.T) {
	t.Parallel()
	missing := "task_" + strings.Repeat("A", 26)
	for name, row := range map[string]struct {
		damage func(t storage.Txn, ids four) error
		want   string
	}{
		"nothing": {func(storage.Txn, four) error { return nil }, ""},

		"a task that cannot be read": {func(t storage.Txn, ids four) error {
			return t.Set(storage.Key(record.TaskPrefix, missing), []byte("x"), time.Time{})
		}, "a record of task cannot be read"},
		"an unreadable record without a task": {plant(record.TaskPrefix, missing), "a record of task cannot be read"},
		"a task at the key of another": {func(t storage.Txn, ids four) error {
			rec, err := record.Tasks.Get(t, ids.failed)
			if err != nil {
				return err
			}
			return storage.SetRecord(t, storage.Key(record.TaskPrefix, missing), rec)
		}, "it is stored under the key of another record"},
		"an unknown state":               {damage(atRunning, func(r *record.Record) { r.State = "done" }), `"done" is no state`},
		"an unknown delivery":            {damage(atRunning, func(r *record.Record) { r.Delivery = "lost" }), `"lost" is no delivery`},
		"an end without a time":          {damage(atSuccess, func(r *record.Record) { r.Completed = 0 }), "was completed at 0"},
		"a time without an end":          {damage(atRunning, func(r *record.Record) { r.Completed = 5 }), "was completed at 5"},
		"a success without results":      {damage(atSuccess, func(r *record.Record) { r.Results = nil }), "has 0 results"},
		"results of a failure":           {damage(atFailed, func(r *record.Record) { r.Results = make([]record.Media, 2) }), "has 2 results"},
		"a failure without a reason":     {damage(atFailed, func(r *record.Record) { r.Failure = nil }), "why it failed is <nil>"},
		"a reason without a failure":     {damage(atRunning, func(r *record.Record) { r.Failure = record.TimedOut }), "why it failed is"},
		"a task that is never due":       {damage(atRunning, func(r *record.Record) { r.Due = 0 }), "is never due"},
		"a refused task that runs":       {damage(atWaiting, func(r *record.Record) { r.Delivery = record.Rejected }), "it was refused, and is queued"},
		"an accepted task without a ref": {damage(atSuccess, func(r *record.Record) { r.Ref = nil }), "accepted without a reference"},
		"a task that runs with us":       {damage(atWaiting, func(r *record.Record) { r.State = record.InProgress }), "it is in_progress, and its delivery is none"},
		"a job of more than a day":       {damage(atRunning, func(r *record.Record) { r.Deadline++ }), "more than a day"},
		"a success that was not settled": {damage(atSuccess, func(r *record.Record) { r.Charged = 0 }), "its hold is settled"},
		"a failure that was charged":     {damage(atFailed, func(r *record.Record) { r.Charged = 5 }), "it failed, and was charged"},
		"a success with the fields of a failure": {damage(atSuccess, func(r *record.Record) {
			r.State, r.Results, r.Failure, r.Charged = record.Failed, nil, record.TimedOut, 0
		}), "its hold is settled"},
		"another price":                  {damage(atSuccess, func(r *record.Record) { r.Charged = 50 }), "its hold has"},
		"a task that holds more":         {damage(atRunning, func(r *record.Record) { r.Hold++ }), "its hold has"},
		"a task without its hold":        {damage(atRunning, func(r *record.Record) { r.Hold = 0 }), "a hold exists: true"},
		"a task with a wrong event flag": {damage(atFailed, func(r *record.Record) { r.Event = false }), "the outbox has one: true"},
		"another user":                   {damage(atRunning, func(r *record.Record) { r.User = "user_bob" }), "a hold exists: false"},
		"a hold of a missing task": {func(t storage.Txn, _ four) error {
			_, err := journal.Book(t, time.Now(), journal.Transfer{
				ID: journal.IDOf("planted"), Kind: journal.Hold, User: ann, Reference: missing,
				Legs: []journal.Leg{{Account: journal.Wallet(ann), Held: 5}},
			})
			return err
		}, "it is open with 0.000000005"},

		"no list of the key":           {lose(atWaiting, record.OfKeyPrefix), "its key of taskof is missing"},
		"no list of the user":          {lose(atWaiting, record.OfUserPrefix), "its key of taskuser is missing"},
		"no place in the queue":        {lose(atWaiting, record.WaitPrefix), "its key of taskwait is missing"},
		"no due time":                  {lose(atRunning, record.DuePrefix), "its key of taskdue is missing"},
		"no key of the ref":            {lose(atRunning, record.RefPrefix), "its key of taskref is missing"},
		"no time of the end":           {lose(atFailed, record.EndPrefix), "its key of taskend is missing"},
		"no body":                      {damage(atWaiting, func(r *record.Record) { r.Body = nil }), "its body exists: false"},
		"no long body":                 {damage(atWaiting, func(r *record.Record) { r.Enclosed, r.Body = false, nil }), "its body exists: false"},
		"a body in the wrong place":    {damage(atWaiting, func(r *record.Record) { r.Enclosed = false }), "it has a second body"},
		"no idempotency key":           {lose(atFailed, record.IdempotencyPrefix), `its idempotency record does not refer to it`},
		"no session id":                {lose(atSuccess, record.SessionPrefix), `its session id is not in use until`},
		"no callback":                  {lose(atSuccess, record.EventPrefix), "the outbox has one: false"},
		"no list of the callback":      {lose(atFailed, record.EventOfPrefix), "its key of eventof is missing"},
		"nothing counts for a backend": {lose(atRunning, record.LoadPrefix), "and no counts"},
		"nothing counts for a key":     {lose(atRunning, record.OpenPrefix), "the counts of unfinished tasks of API keys are wrong"},

		"a list of a key of a missing task":  {plant(record.OfKeyPrefix, annKey, int64(1), missing), "a key of taskof matches no record"},
		"a list of a user of a missing task": {plant(record.OfUserPrefix, ann, int64(1), missing), "a key of taskuser matches no record"},
		"a queue of a missing task":          {plant(record.WaitPrefix, "other", int64(1), missing), "a key of taskwait matches no record"},
		"a due time of a missing task":       {plant(record.DuePrefix, "other", int64(1), missing), "a key of taskdue matches no record"},
		"a ref of a job without webhooks":    {damage(atRunning, func(r *record.Record) { r.NoWebhook = true }), "a key of taskref matches no record"},
		"a ref of a missing task":            {plant(record.RefPrefix, "works", "x", missing), "a key of taskref matches no record"},
		"an end of a missing task":           {plant(record.EndPrefix, int64(1), missing), "a key of taskend matches no record"},
		"a key of no form":                   {plant(record.EndPrefix, "x"), "a key of taskend matches no record"},
		"a body of a missing task":           {plant(record.BodyPrefix, missing), "the task of this body does not exist"},
		"a body of a job at its backend":     {damage(atRunning, func(r *record.Record) { r.Body = json.RawMessage("{}") }), "it is in_progress, and its body exists: true"},
		"a body of a task that is over":      {damage(atSuccess, func(r *record.Record) { r.Body = json.RawMessage("{}") }), "it is success, and its body exists: true"},
		"a second body": {func(t storage.Txn, ids four) error {
			return t.Set(storage.Key(record.BodyPrefix, ids.waiting), nil, time.Time{})
		}, "it has a second body"},
		"a long body of a task that is over": {func(t storage.Txn, ids four) error {
			return errors.Join(
				damage(atSuccess, func(r *record.Record) { r.Enclosed = false })(t, ids),
				t.Set(storage.Key(record.BodyPrefix, ids.success), nil, time.Time{}))
		}, "it is success, and its body exists: true"},
		"a second place in the queue": {func(t storage.Txn, ids four) error {
			return t.Set(storage.Key(record.WaitPrefix, "works", int64(99), ids.waiting), []byte{byte(record.IDSize)}, time.Time{})
		}, "a key of taskwait matches no record"},
		"a session id of a missing task": {func(t storage.Txn, _ four) error {
			return storage.SetRecord(t, storage.Key(record.SessionPrefix, annKey, "x"), record.Session{Key: annKey, Hash: "x", Task: missing, Until: time.Now().Add(time.Hour).UnixMilli()})
		}, "which does not exist or has another session id"},
		"a session id of another": {func(t storage.Txn, ids four) error {
			return storage.SetRecord(t, storage.Key(record.SessionPrefix, annKey, "x"), record.Session{Key: annKey, Hash: "x", Task: ids.waiting, Until: time.Now().Add(time.Hour).UnixMilli()})
		}, "which does not exist or has another session id"},
		"an old session id of a missing task": {func(t storage.Txn, _ four) error {
			return storage.SetRecord(t, storage.Key(record.SessionPrefix, annKey, "x"), record.Session{Key: annKey, Hash: "x", Task: missing, Until: time.Now().UnixMilli()})
		}, ""},
		"a session id that cannot be read": {plant(record.SessionPrefix, annKey, "x"), "a record of tasksession cannot be read"},
		"an idempotency key of a missing task": {func(t storage.Txn, _ four) error {
			return storage.SetRecord(t, storage.Key(record.IdempotencyPrefix, annKey, "x"), record.IdempotencyRecord{Key: annKey, Hash: "x", Task: missing})
		}, "which does not exist or has another idempotency key"},
		"an idempotency key that cannot be read": {plant(record.IdempotencyPrefix, annKey, "x"), "a record of taskclaim cannot be read"},

		"a backend that counts wrong": {func(t storage.Txn, _ four) error {
			return record.Load{Running: 2, Waiting: 1, Last: 9}.Write(t, "works")
		}, "its counts are 2 running"},
		"a backend that waits for more": {func(t storage.Txn, _ four) error {
			return record.Load{Running: 1, Waiting: 2, Last: 9}.Write(t, "works")
		}, "2 waiting"},
		"a queue that gives a place twice": {func(t storage.Txn, _ four) error {
			return record.Load{Running: 1, Waiting: 1, Last: 3}.Write(t, "works")
		}, "up to place 3"},
		"a backend that cannot be read": {plant(record.LoadPrefix, "other"), "backend other: its record cannot be read"},
		"a key that counts wrong": {func(t storage.Txn, _ four) error {
			return record.SetUnfinished(t, annKey, 3)
		}, "the counts of unfinished tasks of API keys are wrong"},
		"a key that counts nothing": {func(t storage.Txn, _ four) error {
			return t.Set(storage.Key(record.OpenPrefix, bobKey), []byte{1, 0}, time.Time{}) // version 1, a count of 0
		}, "it counts 0 unfinished tasks"},

		"a callback that cannot be read": {func(t storage.Txn, _ four) error {
			return t.Set(storage.Key(record.EventPrefix, missing), []byte("x"), time.Time{})
		}, "a record of event cannot be read"},
		"a callback at the key of another": {func(t storage.Txn, ids four) error {
			v, err := record.Events.Get(t, ids.success)
			if err != nil {
				return err
			}
			return storage.SetRecord(t, storage.Key(record.EventPrefix, missing), v)
		}, "it is stored under the key of another record"},
		"a callback of a missing task": {func(t storage.Txn, ids four) error {
			return record.Events.Put(t, nil, &record.Event{Task: missing, User: ann, State: record.Dead, Ended: 1})
		}, "there is no such finished task"},
		"a callback of a task that runs": {func(t storage.Txn, ids four) error {
			return record.Events.Put(t, nil, &record.Event{Task: ids.running, Key: annKey, User: ann, State: record.Dead, Ended: 1})
		}, "there is no such finished task"},
		"a callback of another key":             {damageEvent(atSuccess, func(v *record.Event) { v.Key = bobKey }), "there is no such finished task"},
		"a callback without a due time":         {damageEvent(atSuccess, func(v *record.Event) { v.State = record.Undelivered }), "no attempt is due"},
		"a callback of no state":                {damageEvent(atSuccess, func(v *record.Event) { v.State = "x" }), `its state is "x"`},
		"a callback that is sent again":         {damageEvent(atSuccess, func(v *record.Event) { v.Due = 5 }), "an attempt is due at 5"},
		"a callback without an end":             {damageEvent(atSuccess, func(v *record.Event) { v.Ended = 0 }), "since 0"},
		"a list of callbacks of a missing task": {plant(record.EventOfPrefix, ann, int64(1), missing), "a key of eventof matches no record"},
		"a due time of a missing callback":      {plant(record.EventDuePrefix, ann, annKey, int64(1<<50), missing), "a key of eventdue matches no record"},
		"a due time of a callback sent": {func(t storage.Txn, ids four) error {
			return plant(record.EventDuePrefix, ann, annKey, int64(1<<50), ids.success)(t, ids)
		}, "a key of eventdue matches no record"},
		"a callback due for another key": {func(t storage.Txn, ids four) error {
			v, err := record.Events.Get(t, ids.success)
			if err != nil {
				return err
			}
			before := *v
			v.State, v.Due, v.Ended = record.Undelivered, 1<<50, 0
			if err := record.Events.Put(t, &before, v); err != nil {
				return err
			}
			return plant(record.EventDuePrefix, ann, annKey2, v.Due, v.Task)(t, ids)
		}, "a key of eventdue matches no record"},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				ids := f.fourTasks()
				if found := f.problems(); len(found) > 0 {
					t.Fatalf("before: %v", found)
				}
				f.damaged = true
				// The engine must not drive damaged tasks.
				f.Engine.Close(context.Background())
				if err := f.store.Update(context.Background(), func(t storage.Txn) error { return row.damage(t, ids) }); err != nil {
					t.Fatal(err)
				}
				found := strings.Join(f.problems(), "\n")
				if row.want == "" && found != "" || !strings.Contains(found, row.want) {
					t.Errorf("found\n%s\nwant %q", found, row.want)
				}
			})
		})
	}
}
