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
	"github.com/caddy-modelgate/modelgate/storage"
)

// four are tasks in four states: waiting, running, successful and failed.
type four struct{ waiting, running, success, failed string }

// town makes four tasks, each with all that a task can have.
func (w *world) town() (f four) {
	w.t.Helper()
	w.listen()
	submit := func(name string) string {
		return w.must(with(func(s *Submission) { s.SessionID, s.IdempotencyKey = "s-"+name, "k-"+name })).ID
	}
	f.success, f.failed = submit("success"), submit("failed")
	w.works.tells(f.success, succeeded(1))
	w.works.tells(f.failed, failed(backends.ModelFailed))
	w.until(f.success, Success, time.Minute)
	w.until(f.failed, Failed, time.Minute)
	f.running = submit("running")
	w.until(f.running, InProgress, time.Minute)
	if err := w.Drain(context.Background(), "root", "works"); err != nil {
		w.t.Fatal(err)
	}
	f.waiting = submit("waiting")
	synctest.Wait()
	return f
}

// damage changes the record of a task behind the engine's back.
func damage(id func(f four) string, change func(r *record)) func(t storage.Txn, f four) error {
	return func(t storage.Txn, f four) error {
		rec, err := readTask(t, id(f))
		if err != nil || rec == nil {
			return errors.Join(err, errors.New("no such task"))
		}
		change(rec)
		return t.Set(storage.Key(taskPrefix, rec.ID), storage.EncodeRecord(rec), time.Time{})
	}
}

func damageEvent(id func(f four) string, change func(v *eventRecord)) func(t storage.Txn, f four) error {
	return func(t storage.Txn, f four) error {
		v, err := readEvent(t, id(f))
		if err != nil || v == nil {
			return errors.Join(err, errors.New("no such callback"))
		}
		change(v)
		return storage.SetRecord(t, storage.Key(eventPrefix, v.Task), v)
	}
}

// lose deletes a key that leads to a task or belongs to it.
func lose(id func(f four) string, prefix string) func(t storage.Txn, f four) error {
	return func(t storage.Txn, f four) error {
		rec, err := readTask(t, id(f))
		if err != nil {
			return err
		}
		names := []string{rec.ID, rec.Backend, rec.Key, hashOf(rec.SessionID), rec.IdempotencyHash} // what its keys end with
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
func plant(fields ...any) func(t storage.Txn, f four) error {
	return func(t storage.Txn, _ four) error { return t.Set(storage.Key(fields...), nil, time.Time{}) }
}

func atWaiting(f four) string { return f.waiting }
func atRunning(f four) string { return f.running }
func atSuccess(f four) string { return f.success }
func atFailed(f four) string  { return f.failed }

func TestVerifyFindsWhatDoesNotAddUp(t *testing.T) {
	t.Parallel()
	nobody := "task_" + strings.Repeat("A", 26)
	for name, row := range map[string]struct {
		damage func(t storage.Txn, f four) error
		want   string
	}{
		"nothing": {func(storage.Txn, four) error { return nil }, ""},

		"a task that cannot be read": {func(t storage.Txn, f four) error {
			return t.Set(storage.Key(taskPrefix, nobody), []byte("x"), time.Time{})
		}, "a record of task cannot be read"},
		"a task of which nothing is left": {plant(taskPrefix, nobody), "a record of task cannot be read"},
		"a task at the key of another": {func(t storage.Txn, f four) error {
			rec, err := readTask(t, f.failed)
			if err != nil {
				return err
			}
			return storage.SetRecord(t, storage.Key(taskPrefix, nobody), rec)
		}, "it lies at the key of another"},
		"a state that is none":             {damage(atRunning, func(r *record) { r.State = "done" }), `"done" is no state`},
		"a hand-over that is none":         {damage(atRunning, func(r *record) { r.Delivery = "lost" }), `"lost" is no hand-over`},
		"an end without a time":            {damage(atSuccess, func(r *record) { r.Completed = 0 }), "was completed at 0"},
		"a time without an end":            {damage(atRunning, func(r *record) { r.Completed = 5 }), "was completed at 5"},
		"a success without results":        {damage(atSuccess, func(r *record) { r.Results = nil }), "has 0 results"},
		"results of a failure":             {damage(atFailed, func(r *record) { r.Results = make([]result, 2) }), "has 2 results"},
		"a failure without a reason":       {damage(atFailed, func(r *record) { r.Failure = nil }), "why it failed is <nil>"},
		"a reason without a failure":       {damage(atRunning, func(r *record) { r.Failure = timeout }), "why it failed is"},
		"a task that nobody looks at":      {damage(atRunning, func(r *record) { r.Due = 0 }), "nobody will look at it"},
		"a refused task that runs":         {damage(atWaiting, func(r *record) { r.Delivery = Rejected }), "it was refused, and is queued"},
		"an accepted task without a ref":   {damage(atSuccess, func(r *record) { r.Ref = nil }), "accepted without a reference"},
		"a task that runs with us":         {damage(atWaiting, func(r *record) { r.State = InProgress }), "it is in_progress, and its hand-over none"},
		"a job of more than a day":         {damage(atRunning, func(r *record) { r.Deadline++ }), "more than a day"},
		"a success that was not settled":   {damage(atSuccess, func(r *record) { r.Charged = 0 }), "its hold is settled"},
		"a failure that was charged":       {damage(atFailed, func(r *record) { r.Charged = 5 }), "it failed, and was charged"},
		"a success that says it failed":    {damage(atSuccess, func(r *record) { r.State, r.Results, r.Failure, r.Charged = Failed, nil, timeout, 0 }), "its hold is settled"},
		"another price":                    {damage(atSuccess, func(r *record) { r.Charged = 50 }), "its hold says"},
		"a task that holds more":           {damage(atRunning, func(r *record) { r.Hold++ }), "its hold says"},
		"a task without its hold":          {damage(atRunning, func(r *record) { r.Hold = 0 }), "has a hold: true"},
		"a task that lies about its event": {damage(atFailed, func(r *record) { r.Event = false }), "the outbox has it: true"},
		"another user":                     {damage(atRunning, func(r *record) { r.User = "user_bob" }), "has a hold: false"},
		"a hold of nobody": {func(t storage.Txn, _ four) error {
			_, err := journal.Book(t, time.Now(), journal.Transfer{
				ID: journal.IDOf("planted"), Kind: journal.Hold, User: ann, Reference: nobody,
				Legs: []journal.Leg{{Account: journal.Wallet(ann), Held: 5}},
			})
			return err
		}, "holds 0.000000005 open"},

		"no list of the key":           {lose(atWaiting, ofKeyPrefix), "its key of taskof is missing"},
		"no list of the user":          {lose(atWaiting, ofUserPrefix), "its key of taskuser is missing"},
		"no place in the queue":        {lose(atWaiting, waitPrefix), "its key of taskwait is missing"},
		"no due time":                  {lose(atRunning, duePrefix), "its key of taskdue is missing"},
		"no key of the ref":            {lose(atRunning, refPrefix), "its key of taskref is missing"},
		"no time of the end":           {lose(atFailed, endPrefix), "its key of taskend is missing"},
		"no body":                      {damage(atWaiting, func(r *record) { r.Body = nil }), "its body is there: false"},
		"no long body":                 {damage(atWaiting, func(r *record) { r.Enclosed, r.Body = false, nil }), "its body is there: false"},
		"a body in the wrong place":    {damage(atWaiting, func(r *record) { r.Enclosed = false }), "a body of it is where none belongs"},
		"no idempotency key":           {lose(atFailed, idempotencyPrefix), `its idempotency key does not lead to it`},
		"no session id":                {lose(atSuccess, sessionPrefix), `its session id is not used by it until`},
		"no callback":                  {lose(atSuccess, eventPrefix), "the outbox has it: false"},
		"no list of the callback":      {lose(atFailed, eventOfPrefix), "its key of eventof is missing"},
		"nothing counts for a backend": {lose(atRunning, loadPrefix), "nothing counts them"},
		"nothing counts for a key":     {lose(atRunning, openPrefix), "counted wrong"},

		"a list of a key of nobody":      {plant(ofKeyPrefix, annKey, int64(1), nobody), "a key of taskof leads to no record"},
		"a list of a user of nobody":     {plant(ofUserPrefix, ann, int64(1), nobody), "a key of taskuser leads to no record"},
		"a queue of nobody":              {plant(waitPrefix, "other", int64(1), nobody), "a key of taskwait leads to no record"},
		"a due time of nobody":           {plant(duePrefix, "other", int64(1), nobody), "a key of taskdue leads to no record"},
		"a key of a ref unheard":         {damage(atRunning, func(r *record) { r.NoWebhook = true }), "a key of taskref leads to no record"},
		"a ref of nobody":                {plant(refPrefix, "works", "x", nobody), "a key of taskref leads to no record"},
		"an end of nobody":               {plant(endPrefix, int64(1), nobody), "a key of taskend leads to no record"},
		"a key of no form":               {plant(endPrefix, "x"), "a key of taskend leads to no record"},
		"a body of nobody":               {plant(bodyPrefix, nobody), "it is the body of a task that is not there"},
		"a body of a job at its backend": {damage(atRunning, func(r *record) { r.Body = json.RawMessage("{}") }), "it is in_progress, and its body is there: true"},
		"a body of a task that is over":  {damage(atSuccess, func(r *record) { r.Body = json.RawMessage("{}") }), "it is success, and its body is there: true"},
		"a second body": {func(t storage.Txn, f four) error {
			return t.Set(storage.Key(bodyPrefix, f.waiting), nil, time.Time{})
		}, "a body of it is where none belongs"},
		"a long body of a task that is over": {func(t storage.Txn, f four) error {
			return errors.Join(
				damage(atSuccess, func(r *record) { r.Enclosed = false })(t, f),
				t.Set(storage.Key(bodyPrefix, f.success), nil, time.Time{}))
		}, "it is success, and its body is there: true"},
		"a second place in the queue": {func(t storage.Txn, f four) error {
			return t.Set(storage.Key(waitPrefix, "works", int64(99), f.waiting), []byte{byte(idSize)}, time.Time{})
		}, "a key of taskwait leads to no record"},
		"a session id of nobody": {func(t storage.Txn, _ four) error {
			return storage.SetRecord(t, storage.Key(sessionPrefix, annKey, "x"), sessionRecord{annKey, "x", nobody, milliseconds(time.Now().Add(time.Hour))})
		}, "which is not there or has another session id"},
		"a session id of another": {func(t storage.Txn, f four) error {
			return storage.SetRecord(t, storage.Key(sessionPrefix, annKey, "x"), sessionRecord{annKey, "x", f.waiting, milliseconds(time.Now().Add(time.Hour))})
		}, "which is not there or has another session id"},
		"an old session id of nobody": {func(t storage.Txn, _ four) error {
			return storage.SetRecord(t, storage.Key(sessionPrefix, annKey, "x"), sessionRecord{annKey, "x", nobody, milliseconds(time.Now())})
		}, ""},
		"a session id that cannot be read": {plant(sessionPrefix, annKey, "x"), "a record of tasksession cannot be read"},
		"an idempotency key of nobody": {func(t storage.Txn, _ four) error {
			return storage.SetRecord(t, storage.Key(idempotencyPrefix, annKey, "x"), idempotencyRecord{Key: annKey, Hash: "x", Task: nobody})
		}, "which is not there or has another idempotency key"},
		"an idempotency key that cannot be read": {plant(idempotencyPrefix, annKey, "x"), "a record of taskclaim cannot be read"},

		"a backend that counts wrong": {func(t storage.Txn, _ four) error {
			return load{Running: 2, Waiting: 1, Last: 9}.write(t, "works")
		}, "it is said to have 2 running"},
		"a backend that waits for more": {func(t storage.Txn, _ four) error {
			return load{Running: 1, Waiting: 2, Last: 9}.write(t, "works")
		}, "2 waiting"},
		"a queue that gives a place twice": {func(t storage.Txn, _ four) error {
			return load{Running: 1, Waiting: 1, Last: 3}.write(t, "works")
		}, "up to place 3"},
		"a backend that cannot be read": {plant(loadPrefix, "other"), "backend other: its record cannot be read"},
		"a key that counts wrong": {func(t storage.Txn, _ four) error {
			return setUnfinished(t, annKey, 3)
		}, "counted wrong"},
		"a key that counts nothing": {func(t storage.Txn, _ four) error {
			return t.Set(storage.Key(openPrefix, bobKey), encodeCounts(0), time.Time{})
		}, "it counts 0 unfinished tasks"},

		"a callback that cannot be read": {func(t storage.Txn, _ four) error {
			return t.Set(storage.Key(eventPrefix, nobody), []byte("x"), time.Time{})
		}, "a record of event cannot be read"},
		"a callback at the key of another": {func(t storage.Txn, f four) error {
			v, err := readEvent(t, f.success)
			if err != nil {
				return err
			}
			return storage.SetRecord(t, storage.Key(eventPrefix, nobody), v)
		}, "it lies at the key of another"},
		"a callback of nobody": {func(t storage.Txn, f four) error {
			return events.Put(t, nil, &eventRecord{Task: nobody, User: ann, State: Dead, Ended: 1})
		}, "there is no such task that is over"},
		"a callback of a task that runs": {func(t storage.Txn, f four) error {
			return events.Put(t, nil, &eventRecord{Task: f.running, Key: annKey, User: ann, State: Dead, Ended: 1})
		}, "there is no such task that is over"},
		"a callback of another key":      {damageEvent(atSuccess, func(v *eventRecord) { v.Key = bobKey }), "there is no such task that is over"},
		"a callback that nobody sends":   {damageEvent(atSuccess, func(v *eventRecord) { v.State = Undelivered }), "nobody will send it"},
		"a callback of no state":         {damageEvent(atSuccess, func(v *eventRecord) { v.State = "x" }), `it is "x"`},
		"a callback that is sent again":  {damageEvent(atSuccess, func(v *eventRecord) { v.Due = 5 }), "is sent at 5"},
		"a callback without an end":      {damageEvent(atSuccess, func(v *eventRecord) { v.Ended = 0 }), "since 0"},
		"a list of callbacks of nobody":  {plant(eventOfPrefix, ann, int64(1), nobody), "a key of eventof leads to no record"},
		"a due time of a callback of no": {plant(eventDuePrefix, ann, annKey, int64(1<<50), nobody), "a key of eventdue leads to no record"},
		"a due time of a callback sent": {func(t storage.Txn, f four) error {
			return plant(eventDuePrefix, ann, annKey, int64(1<<50), f.success)(t, f)
		}, "a key of eventdue leads to no record"},
		"a callback due for another key": {func(t storage.Txn, f four) error {
			v, err := readEvent(t, f.success)
			if err != nil {
				return err
			}
			before := *v
			v.State, v.Due, v.Ended = Undelivered, 1<<50, 0
			if err := events.Put(t, &before, v); err != nil {
				return err
			}
			return plant(eventDuePrefix, ann, annKey2, v.Due, v.Task)(t, f)
		}, "a key of eventdue leads to no record"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				f := w.town()
				if found := w.problems(); len(found) > 0 {
					t.Fatalf("before: %v", found)
				}
				w.damaged = true
				// Nothing drives what is damaged.
				w.Engine.Close(context.Background())
				if err := w.store.Update(context.Background(), func(t storage.Txn) error { return row.damage(t, f) }); err != nil {
					t.Fatal(err)
				}
				found := strings.Join(w.problems(), "\n")
				if row.want == "" && found != "" || !strings.Contains(found, row.want) {
					t.Errorf("found\n%s\nwant %q", found, row.want)
				}
			})
		})
	}
}
