package record

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Worker repeats work of an engine: when it is nudged, and after the pause that the last run
// returned. Its methods may be called concurrently.
type Worker struct {
	store *Store
	what  string // names the work in the log
	log   *zap.Logger

	wake chan struct{}
	stop chan struct{}
	once sync.Once
	next atomic.Pointer[time.Time] // when the next run begins without a nudge, by the clock of timers; nil during a run
}

// Worker returns a worker that does nothing until [Worker.Run]. what names the work in the log.
func (s *Store) Worker(what string, fields ...zap.Field) *Worker {
	return &Worker{store: s, what: what, log: s.Log.With(fields...), wake: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Nudge starts a run, after the current run if there is one. It does not block.
func (w *Worker) Nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// NudgeIn starts a run now if the next run would start later than after the pause.
func (w *Worker) NudgeIn(pause time.Duration) {
	if next := w.next.Load(); next == nil || pause < time.Until(*next) {
		w.Nudge()
	}
}

// Halt ends Run after the current run. It does not block.
func (w *Worker) Halt() { w.once.Do(func() { close(w.stop) }) }

// Run calls once repeatedly until Halt, or until the store has stopped. After an error, it logs the
// error and calls once again after a second.
func (w *Worker) Run(once func() (pause time.Duration, err error)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-w.wake:
		case <-timer.C:
		}
		w.next.Store(nil)
		pause, err := once()
		if stopped := w.store.Err(); stopped != nil { // only a restart helps
			w.log.Error(w.what+" has ended", zap.Error(stopped))
			return
		}
		if err != nil && w.store.Life.Err() == nil {
			w.log.Error(w.what, zap.Error(err))
			pause = time.Second
		}
		pause = max(pause, time.Millisecond)
		next := time.Now().Add(pause)
		w.next.Store(&next)
		timer.Reset(pause)
	}
}

// Idle is the maximum sleep of a driver or a sender: another process may have left work.
const Idle = time.Minute

// JobLife is the maximum time of a job at a backend (docs/reference/tasks.md#states).
const JobLife = 24 * time.Hour

// Jitter returns d changed at random by at most a fifth, so that events do not coincide.
func Jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1) //nolint:gosec // not secret
}
