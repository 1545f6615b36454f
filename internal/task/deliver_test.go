package task

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestUnknownDeliveryIsReconciled(t *testing.T) {
	t.Parallel()
	unconfirmed := errors.New("the connection was cut")
	for name, row := range map[string]struct {
		afterAccept error // result after the acceptance
		lost        bool  // not accepted
		finds       bool
		find        func(f *fixture) func(*work) (backends.Ref, error)
		after       time.Duration
		want        record.State
	}{
		"no Reconcile":                   {afterAccept: unconfirmed, after: transition.Grace + time.Second, want: record.Failed},
		"no Reconcile, before the grace": {afterAccept: unconfirmed, after: transition.Grace - time.Second, want: record.Pending},
		"found":                          {afterAccept: unconfirmed, finds: true, after: 10 * time.Second, want: record.InProgress},
		"certainly not accepted":         {lost: true, finds: true, after: 10 * time.Second, want: record.Failed},
		"found late": {afterAccept: unconfirmed, finds: true, find: func(f *fixture) func(*work) (backends.Ref, error) {
			began := time.Now()
			return func(j *work) (backends.Ref, error) {
				if time.Since(began) < transition.Grace-time.Minute {
					return backends.Ref{}, errors.New("not now")
				}
				return backends.Ref{ID: "job-" + j.token}, nil
			}
		}, after: transition.Grace + 10*time.Second, want: record.InProgress},
		"never found": {afterAccept: unconfirmed, finds: true, find: func(*fixture) func(*work) (backends.Ref, error) {
			return func(*work) (backends.Ref, error) { return backends.Ref{}, errors.New("not now") }
		}, after: transition.Grace + 20*time.Second, want: record.Failed},
		"a panic of Reconcile": {afterAccept: unconfirmed, finds: true, find: func(*fixture) func(*work) (backends.Ref, error) {
			return func(*work) (backends.Ref, error) { panic("bug") }
		}, after: transition.Grace - time.Second, want: record.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				if row.finds {
					f.serve(func(c *Config) { c.Backends[0].Backend = finding{f.service} })
				}
				f.service.set(func(s *mockService) {
					if row.lost {
						s.submit = func(backends.Job) error { return unconfirmed }
					}
					s.afterAccept = func(backends.Job) error { return row.afterAccept }
					if row.find != nil {
						s.find = row.find(f)
					}
				})
				task := f.mustSubmit(video())
				if task.Status != record.Pending || task.Progress != "0%" {
					t.Fatalf("the task with unknown delivery is %+v", task)
				}
				f.sleep(row.after)
				f.wantStatus(task.ID, row.want)
				if jobs, maxAccepted := f.service.accepted(); jobs+maxAccepted > 2 {
					t.Errorf("%d jobs, one accepted %d times", jobs, maxAccepted)
				}
				if row.want == record.Failed {
					f.checkWallet(1000, 0)
				}
			})
		})
	}
}

func TestAPanicOrTimeoutMakesTheDeliveryUnknown(t *testing.T) {
	t.Parallel()
	for name, submit := range map[string]func(backends.Job) error{
		"a panic":   func(backends.Job) error { panic("bug") },
		"a timeout": nil,
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.service.set(func(s *mockService) {
					s.submit = submit
					if submit == nil {
						s.hold = func(ctx context.Context, _ backends.Job) { <-ctx.Done() }
						s.afterAccept = func(backends.Job) error { return context.DeadlineExceeded }
					}
				})
				task := f.mustSubmit(video())
				f.sleep(submitTimeout)
				f.wantStatus(task.ID, record.Pending)
			})
		})
	}
}

func TestALateAcceptanceCounts(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].Backend = finding{f.service} })
		f.service.set(func(s *mockService) {
			s.hold = func(context.Context, backends.Job) { time.Sleep(90 * time.Second) } // the adapter ignores its context
			s.find = func(*work) (backends.Ref, error) {
				time.Sleep(28600 * time.Millisecond) // until just after the acceptance
				return backends.Ref{}, &backends.Error{Kind: backends.Gone}
			}
		})
		task := f.mustSubmit(video())
		f.sleep(65*time.Second - deliveryWait)
		f.wantStatus(task.ID, record.Pending)
		f.sleep(time.Minute)
		f.wantStatus(task.ID, record.InProgress)
		f.service.succeed(1)
		f.waitStatus(task.ID, record.Success, time.Minute)
		f.checkWallet(900, 0)
	})
}

func TestAnAcceptanceAfterTheEndIsALoss(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].Backend = cancelling{f.service} })
		f.service.set(func(s *mockService) { s.hold = func(context.Context, backends.Job) { time.Sleep(20 * time.Minute) } })
		task := f.mustSubmit(video())
		f.sleep(30 * time.Minute)
		f.wantStatus(task.ID, record.Failed)
		f.checkWallet(1000, 0)
		if f.Stats().Losses != 1 || !f.service.jobs[backends.Token(task.ID)].cancelled {
			t.Errorf("%+v", f.Stats())
		}
	})
}

// TestASlowDeliveryIsNotUnknownWhileItsLeaseHolds checks that no driver marks a delivery as unknown
// during its lease, although the task is due soon after it was sent.
func TestASlowDeliveryIsNotUnknownWhileItsLeaseHolds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		takes time.Duration // the delivery; zero: until the process is killed
		stays bool          // the due time does not change on acceptance
	}{
		"1 ms":                        {takes: time.Millisecond, stays: true},
		"half a second":               {takes: 500 * time.Millisecond, stays: true},
		"longer than a poll interval": {takes: 5 * time.Second},
		"29 s":                        {takes: 29 * time.Second},
		"until a kill":                {},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				other := Open(f.store, f.ledger, Options{})
				if err := other.Serve(f.config); err != nil {
					t.Fatal(err)
				}
				defer func() { other.Close(context.Background()) }()
				sent := make(chan string, 1)
				f.service.set(func(s *mockService) {
					s.hold = func(ctx context.Context, job backends.Job) {
						sent <- job.Token
						if row.takes == 0 {
							<-ctx.Done()
							return
						}
						time.Sleep(row.takes)
					}
				})
				go func() { _, _ = f.submit(video()) }()
				<-sent
				const latest = 2400 * time.Millisecond // maximum time from the delivery to the first poll
				began := time.Now()
				tasks, _, err := f.List(context.Background(), record.OfKey(annKey), Page{})
				if err != nil || len(tasks) != 1 {
					t.Fatalf("%v, %v", tasks, err)
				}
				id := tasks[0].ID
				due := f.record(id).Due
				if row.takes == 0 {
					other.Close(context.Background())
					f.service.set(func(s *mockService) { s.submit = func(backends.Job) error { return context.Canceled } })
					f.kill()
					f.start()
					other = Open(f.store, f.ledger, Options{})
					if err := other.Serve(f.config); err != nil {
						t.Fatal(err)
					}
					f.sleep(transition.LeaseFor - time.Second)
					f.wantStatus(id, record.Queued)
					f.sleep(2 * time.Second)
					f.wantStatus(id, record.Pending)
					f.sleep(transition.Grace)
					f.wantStatus(id, record.Failed)
					return
				}
				for time.Since(began) < row.takes-time.Second {
					if rec := f.record(id); rec.Delivery != record.Sending || rec.Fence != 1 {
						t.Fatalf("after %v the delivery is %s, the fence %d", time.Since(began), rec.Delivery, rec.Fence)
					}
					f.sleep(time.Second)
				}
				f.sleep(row.takes - time.Since(began))
				rec := f.record(id)
				if rec.Delivery != record.Accepted || (rec.Due == due) != row.stays {
					t.Errorf("the delivery is %s, due at %d; during the delivery the task was due at %d", rec.Delivery, rec.Due, due)
				}
				if ahead := time.Duration(rec.Due-f.now()) * time.Millisecond; ahead < transition.WakePause || ahead > latest {
					t.Errorf("the next poll is in %v", ahead)
				}
				f.sleep(latest)
				f.wantStatus(id, record.InProgress)
				if jobs, maxAccepted := f.service.accepted(); jobs != 1 || maxAccepted != 1 {
					t.Errorf("%d jobs, one accepted %d times", jobs, maxAccepted)
				}
			})
		})
	}
}

// slow is a storage engine that commits one transaction and later returns ErrUnknown
// for it, as after a timeout.
type slow struct {
	storage.Engine
	armed atomic.Bool
	takes time.Duration
}

func (s *slow) Update(ctx context.Context, fn func(storage.Txn) error) error {
	err := s.Engine.Update(ctx, fn)
	if err == nil && s.armed.CompareAndSwap(true, false) {
		time.Sleep(s.takes)
		return storage.ErrUnknown
	}
	return err
}

// TestASubmissionOfUnknownOutcomeIsSentOnce lets the driver send a task whose submission
// does not know yet that its transaction was committed.
func TestASubmissionOfUnknownOutcomeIsSentOnce(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.stop()
		disk := &slow{Engine: &power{Engine: f.disk}, takes: 5 * time.Second}
		store := storage.New(disk, storage.Options{Gather: -1})
		l, err := ledger.Open(context.Background(), store, ledger.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e := Open(store, l, Options{})
		defer func() {
			e.Close(context.Background())
			l.Close(context.Background())
			_ = store.Close()
			f.start()
		}()
		serve := func(limit int) {
			config := f.config
			config.Backends = []Backend{{Name: "works", Backend: f.service, MaxRunning: limit}}
			if err := e.Serve(config); err != nil {
				t.Fatal(err)
			}
		}
		submit := func() {
			if _, _, err := e.Submit(context.Background(), video()); err != nil {
				t.Error(err)
			}
		}
		serve(1)
		submit()
		f.service.set(func(s *mockService) { s.hold = func(context.Context, backends.Job) { time.Sleep(time.Second) } })
		time.Sleep(500 * time.Millisecond)
		disk.armed.Store(true)
		done := make(chan struct{})
		go func() { defer close(done); submit() }()
		time.Sleep(time.Second)
		serve(2) // a slot is free now
		<-done
		f.sleep(time.Minute)
		if jobs, maxAccepted := f.service.accepted(); jobs != 2 || maxAccepted != 1 {
			t.Errorf("%d jobs, one accepted %d times", jobs, maxAccepted)
		}
	})
}

func TestARetryDuringABusyDeliveryKeepsTheTaskQueued(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.set(func(s *mockService) {
			s.hold = func(context.Context, backends.Job) { time.Sleep(5 * time.Second) }
			s.submit = func(backends.Job) error { return &backends.Error{Kind: backends.Busy} }
		})
		go func() { _, _ = f.submit(video()) }()
		f.sleep(3 * time.Second)
		id := f.first()
		if _, err := f.Retry(context.Background(), "root", id); err != nil {
			t.Fatal(err)
		}
		f.sleep(10 * time.Second)
		f.wantStatus(id, record.Queued)
	})
}

func TestAClockSetBackDuringADeliveryDelaysNoPoll(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.ahead.Store(int64(10 * time.Hour))
		f.service.set(func(s *mockService) { s.hold = func(context.Context, backends.Job) { time.Sleep(time.Second) } })
		go func() { _, _ = f.submit(video()) }()
		time.Sleep(500 * time.Millisecond)
		f.ahead.Store(0)
		f.sleep(time.Minute)
		if id := f.first(); f.service.polled(id) == 0 {
			t.Errorf("no poll within a minute: the task is due in %v", time.Duration(f.record(id).Due-f.now())*time.Millisecond)
		}
	})
}

// first returns the id of ann's only task.
func (f *fixture) first() string {
	f.t.Helper()
	tasks, _, err := f.List(context.Background(), record.OfKey(annKey), Page{})
	if err != nil || len(tasks) != 1 {
		f.t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	return tasks[0].ID
}
