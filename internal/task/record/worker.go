package record

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Worker does work of an engine in turns: when it is nudged, and when the pause is over that its
// last turn returned. Its methods may be called concurrently.
type Worker struct {
	store *Store
	what  string // it does
	log   *zap.Logger

	wake chan struct{}
	stop chan struct{}
	once sync.Once
	next atomic.Pointer[time.Time] // when the next turn begins without a nudge, by the clock of timers; nil during a turn
}

// Worker returns a worker that does nothing until [Worker.Run]. what names the work in the log.
func (s *Store) Worker(what string, fields ...zap.Field) *Worker {
	return &Worker{store: s, what: what, log: s.Log.With(fields...), wake: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Nudge begins a turn, after the one under way if there is one.
func (w *Worker) Nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// NudgeIn begins a turn after a pause, unless one begins earlier.
func (w *Worker) NudgeIn(pause time.Duration) {
	if next := w.next.Load(); next == nil || pause < time.Until(*next) {
		w.Nudge()
	}
}

// Halt ends Run after the turn under way.
func (w *Worker) Halt() { w.once.Do(func() { close(w.stop) }) }

// Run calls turn until Halt, or until the store has stopped. A turn that fails is logged and
// repeated after a second.
func (w *Worker) Run(turn func() (pause time.Duration, err error)) {
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
		pause, err := turn()
		if stopped := w.store.Err(); stopped != nil { // until a restart nothing can be done
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
