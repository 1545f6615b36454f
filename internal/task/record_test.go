package task

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestAKnownTaskIsWhatTheStoreHas: what is known of a task that this process has
// written stands for what would be read of it, and only as long as it does.
func TestAKnownTaskIsWhatTheStoreHas(t *testing.T) {
	in(t, func(w *world) {
		sound := true
		s := with(func(s *Submission) {
			s.SessionID, s.SessionContext, s.IdempotencyKey = "s", "<&\u2028", "k"
			s.Quote = catalog.Quote{
				Rule: "0.10 a second", Kind: catalog.Video, Request: 7,
				Asked: catalog.Work{Count: 2, Duration: 8*catalog.Second + 1, Resolution: "720P", Audio: &sound},
				Rows:  []catalog.Variant{{Resolution: "720P", Audio: true, Price: 3}, {Price: 1}},
			}
			s.Job.Prompt, s.Job.Output.MediaName = "<&\u2028", "cat"
		})
		same := func(known, have *record) bool {
			mine, its := *known, *have
			mine.written, its.written = nil, nil
			return reflect.DeepEqual(mine, its)
		}
		err := w.ledger.Update(context.Background(), ann, nil, func(t *ledger.Txn) error {
			made, err := s.accept(t, w.Engine, s.record(newID()), nil)
			if err != nil {
				return err
			}
			read, err := readTask(t, made.ID)
			if err != nil {
				return err
			}
			known, err := reread(t, made)
			if err != nil {
				return err
			}
			if !same(made, read) || known != made {
				w.t.Errorf("made\n%+v\nread\n%+v\nknown\n%+v", made, read, known)
			}
			if _, err := change(t, made.ID, func(r *record) bool { r.Woken = true; return true }); err != nil {
				return err
			}
			if known, err = reread(t, made); err == nil && !known.Woken {
				w.t.Error("what somebody else has written is not read")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestTasksOfAnOlderStoreGoOn: their bodies lie apart until they are over, however
// short, what is being sent is due when its lease ends, and a key leads from each
// job to its task.
func TestTasksOfAnOlderStoreGoOn(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].Backend, c.Backends[0].MaxRunning = finding{w.works}, 2 })
		running := w.must(video()).ID
		w.works.set(func(s *works) {
			s.hold = func(ctx context.Context, _ backends.Job) { <-ctx.Done() }
			s.submit = func(backends.Job) error { return context.Canceled }
		})
		go func() { _, _ = w.submit(video()) }()
		w.sleep(time.Second)
		waiting := w.must(video()).ID
		var sending string
		tasks, _, err := w.List(context.Background(), OfKey(annKey), Page{})
		if err != nil || len(tasks) != 3 {
			t.Fatalf("%v, %v", tasks, err)
		}
		for _, task := range tasks {
			if task.ID != running && task.ID != waiting {
				sending = task.ID
			}
		}
		w.kill()
		w.works.set(func(s *works) { s.hold, s.submit = nil, nil })
		disk := storage.New(&power{Engine: w.disk}, storage.Options{Gather: -1})
		err = disk.Update(context.Background(), func(t storage.Txn) error {
			for _, id := range []string{running, sending, waiting} {
				s := video()
				s.record(id)
				if err := t.Set(storage.Key(bodyPrefix, id), s.body, time.Time{}); err != nil {
					return err
				}
				_, err := change(t, id, func(r *record) bool {
					r.Enclosed, r.Body = false, nil
					if id == sending {
						r.Due = r.Lease
					}
					return true
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(err, disk.Close()); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.sound()
		w.sleep(leaseFor - 5*time.Second)
		w.is(sending, Queued)
		w.works.succeed(1)
		w.until(running, Success, time.Minute)
		w.until(waiting, Success, time.Minute)
		w.until(sending, Failed, time.Minute) // there surely is no job
		lo, hi := storage.Below(bodyPrefix)
		err = w.view(context.Background(), func(r storage.Reader) error {
			return r.Scan(lo, hi, func(key, _ []byte) bool {
				t.Errorf("%q is left", key)
				return true
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
