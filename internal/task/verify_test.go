package task

import (
	"bytes"
	"context"
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

// four has the ids of tasks in four states.
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
	f.waitStatus(ids.success, record.Success, time.Minute)
	f.waitStatus(ids.failed, record.Failed, time.Minute)
	ids.running = submit("running")
	f.waitStatus(ids.running, record.InProgress, time.Minute)
	if err := f.Drain(context.Background(), "root", "works"); err != nil {
		f.t.Fatal(err)
	}
	ids.waiting = submit("waiting")
	synctest.Wait()
	return ids
}

// damage changes the record of a task without its indexes.
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

// deleteKey deletes an index key or another record of a task.
func deleteKey(id func(ids four) string, prefix string) func(t storage.Txn, ids four) error {
	return func(t storage.Txn, ids four) error {
		rec, err := record.Tasks.Get(t, id(ids))
		if err != nil {
			return err
		}
		names := []string{rec.ID, rec.Backend, rec.Key, record.HashOf(rec.SessionID), rec.IdempotencyHash} // the ends of its keys
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
		return errors.New("the task has no key below " + prefix)
	}
}

// danglingKey sets an index key without a record.
func danglingKey(fields ...any) func(t storage.Txn, ids four) error {
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
		"an unreadable record without a task": {danglingKey(record.TaskPrefix, missing), "a record of task cannot be read"},
		"a task at the key of another": {func(t storage.Txn, ids four) error {
			rec, err := record.Tasks.Get(t, ids.failed)
			if err != nil {
				return err
			}
			return storage.SetRecord(t, storage.Key(record.TaskPrefix, missing), rec)
		}, "it is stored under the key of another record"},
		"an unknown state":                 {damage(atRunning, func(r *record.Record) { r.State = "done" }), `"done" is not a state`},
		"an unknown delivery":              {damage(atRunning, func(r *record.Record) { r.Delivery = "lost" }), `"lost" is not a delivery`},
		"an end without a time":            {damage(atSuccess, func(r *record.Record) { r.Completed = 0 }), "was completed at 0"},
		"a time without an end":            {damage(atRunning, func(r *record.Record) { r.Completed = 5 }), "was completed at 5"},
		"a success without results":        {damage(atSuccess, func(r *record.Record) { r.Results = nil }), "has 0 results"},
		"results of a failure":             {damage(atFailed, func(r *record.Record) { r.Results = make([]record.Media, 2) }), "has 2 results"},
		"a failure without a reason":       {damage(atFailed, func(r *record.Record) { r.Failure = nil }), "its failure is <nil>"},
		"a reason without a failure":       {damage(atRunning, func(r *record.Record) { r.Failure = record.TimedOut }), "its failure is"},
		"a task that is never due":         {damage(atRunning, func(r *record.Record) { r.Due = 0 }), "is never due"},
		"a refused task that runs":         {damage(atWaiting, func(r *record.Record) { r.Delivery = record.Rejected }), "it was refused, and is queued"},
		"an accepted task without a ref":   {damage(atSuccess, func(r *record.Record) { r.Ref = nil }), "accepted without a reference"},
		"a running task that was not sent": {damage(atWaiting, func(r *record.Record) { r.State = record.InProgress }), "it is in_progress, and its delivery is none"},
		"a job of more than a day":         {damage(atRunning, func(r *record.Record) { r.Deadline++ }), "more than 24h0m0s"},
		"a success without a charge":       {damage(atSuccess, func(r *record.Record) { r.Charged = 0 }), "its hold is settled"},
		"a failure that was charged":       {damage(atFailed, func(r *record.Record) { r.Charged = 5 }), "it failed, and was charged"},
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

		"no list of the key":        {deleteKey(atWaiting, record.OfKeyPrefix), "its key of taskof is missing"},
		"no list of the user":       {deleteKey(atWaiting, record.OfUserPrefix), "its key of taskuser is missing"},
		"no key of the queue":       {deleteKey(atWaiting, record.WaitPrefix), "its key of taskwait is missing"},
		"no due time":               {deleteKey(atRunning, record.DuePrefix), "its key of taskdue is missing"},
		"no key of the ref":         {deleteKey(atRunning, record.RefPrefix), "its key of taskref is missing"},
		"no key of the end":         {deleteKey(atFailed, record.EndPrefix), "its key of taskend is missing"},
		"no body":                   {damage(atWaiting, func(r *record.Record) { r.Body = nil }), "its body exists: false"},
		"no long body":              {damage(atWaiting, func(r *record.Record) { r.Enclosed, r.Body = false, nil }), "its body exists: false"},
		"a body in the wrong place": {damage(atWaiting, func(r *record.Record) { r.Enclosed = false }), "it has a second body"},
		"no idempotency key":        {deleteKey(atFailed, record.IdempotencyPrefix), `its idempotency record does not refer to it`},
		"no session id":             {deleteKey(atSuccess, record.SessionPrefix), `its session id is not in use until`},
		"no callback":               {deleteKey(atSuccess, record.EventPrefix), "the outbox has one: false"},
		"no list of the callback":   {deleteKey(atFailed, record.EventOfPrefix), "its key of eventof is missing"},
		"no counts of a backend":    {deleteKey(atRunning, record.LoadPrefix), "and no counts"},
		"no count of a key":         {deleteKey(atRunning, record.OpenPrefix), "the counts of unfinished tasks of API keys are wrong"},

		"a list of a key of a missing task":  {danglingKey(record.OfKeyPrefix, annKey, int64(1), missing), "a key of taskof matches no record"},
		"a list of a user of a missing task": {danglingKey(record.OfUserPrefix, ann, int64(1), missing), "a key of taskuser matches no record"},
		"a queue of a missing task":          {danglingKey(record.WaitPrefix, "other", int64(1), missing), "a key of taskwait matches no record"},
		"a due time of a missing task":       {danglingKey(record.DuePrefix, "other", int64(1), missing), "a key of taskdue matches no record"},
		"a ref of a job without webhooks":    {damage(atRunning, func(r *record.Record) { r.NoWebhook = true }), "a key of taskref matches no record"},
		"a ref of a missing task":            {danglingKey(record.RefPrefix, "works", "x", missing), "a key of taskref matches no record"},
		"an end of a missing task":           {danglingKey(record.EndPrefix, int64(1), missing), "a key of taskend matches no record"},
		"a malformed key":                    {danglingKey(record.EndPrefix, "x"), "a key of taskend matches no record"},
		"a body of a missing task":           {danglingKey(record.BodyPrefix, missing), "the task of this body does not exist"},
		"no body of a job at its backend":    {damage(atRunning, func(r *record.Record) { r.Body = nil }), "it is in_progress, and its body exists: false"},
		"no body of a finished task":         {damage(atSuccess, func(r *record.Record) { r.Body = nil }), "it is success, and its body exists: false"},
		"a second body": {func(t storage.Txn, ids four) error {
			return t.Set(storage.Key(record.BodyPrefix, ids.waiting), nil, time.Time{})
		}, "it has a second body"},
		"a long body of a finished task": {func(t storage.Txn, ids four) error {
			return errors.Join(
				damage(atSuccess, func(r *record.Record) { r.Enclosed, r.Body = false, nil })(t, ids),
				t.Set(storage.Key(record.BodyPrefix, ids.success), nil, time.Time{}))
		}, "it is success, and its body exists: true"},
		"a second place in the queue": {func(t storage.Txn, ids four) error {
			return t.Set(storage.Key(record.WaitPrefix, "works", int64(99), ids.waiting), []byte{byte(record.IDSize)}, time.Time{})
		}, "a key of taskwait matches no record"},
		"a session id of a missing task": {func(t storage.Txn, _ four) error {
			return storage.SetRecord(t, storage.Key(record.SessionPrefix, annKey, "x"), record.Session{Key: annKey, Hash: "x", Task: missing, Until: time.Now().Add(time.Hour).UnixMilli()})
		}, "which does not exist or has another session id"},
		"a session id of another task": {func(t storage.Txn, ids four) error {
			return storage.SetRecord(t, storage.Key(record.SessionPrefix, annKey, "x"), record.Session{Key: annKey, Hash: "x", Task: ids.waiting, Until: time.Now().Add(time.Hour).UnixMilli()})
		}, "which does not exist or has another session id"},
		"an old session id of a missing task": {func(t storage.Txn, _ four) error {
			return storage.SetRecord(t, storage.Key(record.SessionPrefix, annKey, "x"), record.Session{Key: annKey, Hash: "x", Task: missing, Until: time.Now().UnixMilli()})
		}, ""},
		"a session id that cannot be read": {danglingKey(record.SessionPrefix, annKey, "x"), "a record of tasksession cannot be read"},
		"an idempotency key of a missing task": {func(t storage.Txn, _ four) error {
			return storage.SetRecord(t, storage.Key(record.IdempotencyPrefix, annKey, "x"), record.IdempotencyRecord{Key: annKey, Hash: "x", Task: missing})
		}, "which does not exist or has another idempotency key"},
		"an idempotency key that cannot be read": {danglingKey(record.IdempotencyPrefix, annKey, "x"), "a record of taskclaim cannot be read"},

		"wrong counts of a backend": {func(t storage.Txn, _ four) error {
			return record.Load{Running: 2, Waiting: 1, Last: 9}.Write(t, "works")
		}, "its counts are 2 running"},
		"too many waiting tasks in the counts": {func(t storage.Txn, _ four) error {
			return record.Load{Running: 1, Waiting: 2, Last: 9}.Write(t, "works")
		}, "2 waiting"},
		"a place in the queue that is used twice": {func(t storage.Txn, _ four) error {
			return record.Load{Running: 1, Waiting: 1, Last: 3}.Write(t, "works")
		}, "up to place 3"},
		"counts of a backend that cannot be read": {danglingKey(record.LoadPrefix, "other"), "backend other: its record cannot be read"},
		"a wrong count of a key": {func(t storage.Txn, _ four) error {
			return record.SetUnfinished(t, annKey, 3)
		}, "the counts of unfinished tasks of API keys are wrong"},
		"a zero count of a key": {func(t storage.Txn, _ four) error {
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
		"a callback of a running task": {func(t storage.Txn, ids four) error {
			return record.Events.Put(t, nil, &record.Event{Task: ids.running, Key: annKey, User: ann, State: record.Dead, Ended: 1})
		}, "there is no such finished task"},
		"a callback of another key":             {damageEvent(atSuccess, func(v *record.Event) { v.Key = bobKey }), "there is no such finished task"},
		"a callback without a due time":         {damageEvent(atSuccess, func(v *record.Event) { v.State = record.Undelivered }), "no attempt is due"},
		"a callback of an unknown state":        {damageEvent(atSuccess, func(v *record.Event) { v.State = "x" }), `its state is "x"`},
		"a callback that is sent again":         {damageEvent(atSuccess, func(v *record.Event) { v.Due = 5 }), "an attempt is due at 5"},
		"a callback without an end":             {damageEvent(atSuccess, func(v *record.Event) { v.Ended = 0 }), "since 0"},
		"a list of callbacks of a missing task": {danglingKey(record.EventOfPrefix, ann, int64(1), missing), "a key of eventof matches no record"},
		"a due time of a missing callback":      {danglingKey(record.EventDuePrefix, ann, annKey, int64(1<<50), missing), "a key of eventdue matches no record"},
		"a due time of a delivered callback": {func(t storage.Txn, ids four) error {
			return danglingKey(record.EventDuePrefix, ann, annKey, int64(1<<50), ids.success)(t, ids)
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
			return danglingKey(record.EventDuePrefix, ann, annKey2, v.Due, v.Task)(t, ids)
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
