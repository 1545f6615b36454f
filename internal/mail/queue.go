// Package mail sends the mails of the gateway. A [Queue] holds the mails that wait and sends them
// from one goroutine, so that a request never waits for a mail server. [Write] writes a [Message] in
// a language, [CheckAddress] decides which addresses are mailed. The package knows neither users nor
// the store, and imports no other package of this module.
package mail

import (
	"context"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// maxWaiting bounds the mails that wait. A further one is dropped.
	maxWaiting = 256

	// sendTimeout bounds one attempt to send a mail.
	sendTimeout = 30 * time.Second
)

// delays are the waits after each failed attempt. After the last attempt a mail has failed: a code in
// it is about to expire.
var delays = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// Stats counts the mails of a queue.
type Stats struct {
	Sent    int64
	Retried int64 // failed attempts that are repeated
	Failed  int64 // not tried again: rejected by the mail server, or the last attempt failed
	Dropped int64 // not tried: the queue was full, mail was turned off, or the process ended
}

// Queue sends mails in the background. It is in memory: a crash loses the mails that wait. Its
// methods may be called concurrently and do not block, except Close.
type Queue struct {
	logger *zap.Logger
	ctx    context.Context // of the attempts; ends with Close
	end    context.CancelFunc
	wake   chan struct{} // has a value after each change of waiting or server
	ended  chan struct{}

	mu      sync.Mutex
	server  *Server // nil: mail is off
	waiting []*waiting
	stats   Stats
}

// waiting is a mail in a queue.
type waiting struct {
	*outgoing
	due      time.Time // of the next attempt
	attempts int       // failed so far
}

// Open returns a queue whose mail is off. Close ends it.
func Open(logger *zap.Logger) *Queue {
	q := &Queue{logger: logger, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	q.ctx, q.end = context.WithCancel(context.Background())
	go q.run()
	return q
}

// Use sets the mail server for later attempts. With nil, mail is off, and waiting mails are dropped.
func (q *Queue) Use(server *Server) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.server = server; server == nil {
		q.drop("mail was turned off")
	}
	q.signal()
}

// Send adds a mail. It reports false if the mail was dropped.
func (q *Queue) Send(m Message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	reason := ""
	switch {
	case q.ctx.Err() != nil:
		reason = "the process ends"
	case q.server == nil:
		reason = "mail is off"
	case len(q.waiting) >= maxWaiting:
		reason = "too many mails wait"
	}
	if reason != "" {
		q.stats.Dropped++
		q.logger.Error("a mail was dropped", zap.String("mail", m.Kind), zap.String("user_id", m.UserID), zap.String("reason", reason))
		return false
	}
	q.waiting = append(q.waiting, &waiting{outgoing: newOutgoing(m, q.server), due: time.Now()})
	q.signal()
	return true
}

// Close stops the attempt that runs, drops the mails that wait, and ends the goroutine.
func (q *Queue) Close() {
	q.end()
	<-q.ended
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop("the process ends")
}

// Stats returns the figures of the queue since Open.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}

// drop drops all mails that wait. The caller holds the mutex.
func (q *Queue) drop(reason string) {
	if n := len(q.waiting); n > 0 {
		q.stats.Dropped += int64(n)
		q.logger.Error("mails were dropped", zap.Int("mails", n), zap.String("reason", reason))
	}
	q.waiting = nil
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run sends the mails that are due, one after another.
func (q *Queue) run() {
	defer close(q.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for q.ctx.Err() == nil {
		next, server, wait := q.next()
		if next != nil {
			q.conclude(next, q.attempt(next, server))
			continue
		}
		timer.Reset(wait)
		select {
		case <-q.ctx.Done():
		case <-q.wake:
		case <-timer.C:
		}
	}
}

// next returns the mail that has been due for the longest time, or nil and how long to wait.
func (q *Queue) next() (*waiting, *Server, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var first *waiting
	for _, w := range q.waiting {
		if first == nil || w.due.Before(first.due) {
			first = w
		}
	}
	if first == nil {
		return nil, nil, math.MaxInt64
	}
	if wait := time.Until(first.due); wait > 0 {
		return nil, nil, wait
	}
	return first, q.server, 0
}

func (q *Queue) attempt(w *waiting, server *Server) error {
	ctx, cancel := context.WithTimeout(q.ctx, sendTimeout)
	defer cancel()
	return server.send(ctx, w.outgoing)
}

// conclude removes a mail that was sent or has failed. Otherwise it sets when the next attempt is due.
func (q *Queue) conclude(w *waiting, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil && q.ctx.Err() != nil {
		return // Close drops it
	}
	i := -1
	for n, each := range q.waiting {
		if each == w {
			i = n
		}
	}
	if i < 0 && err != nil {
		return // mail was turned off meanwhile
	}
	fields := []zap.Field{zap.String("mail", w.Kind), zap.String("user_id", w.UserID), zap.Int("attempt", w.attempts+1)}
	if err != nil && !isFinal(err) && w.attempts < len(delays) {
		w.due = time.Now().Add(delays[w.attempts])
		w.attempts++
		q.stats.Retried++
		q.logger.Warn("a mail was not sent and is tried again", append(fields, zap.String("error", reasonOf(err)))...)
		return
	}
	if i >= 0 {
		q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
	}
	if err != nil {
		q.stats.Failed++
		q.logger.Error("a mail was not sent", append(fields, zap.String("error", reasonOf(err)))...)
		return
	}
	q.stats.Sent++
	q.logger.Info("a mail was sent", fields...)
}
