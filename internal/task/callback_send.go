package task

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// attempts are how long after the one before each attempt is made, the first
// after the event (docs/reference/tasks.md#callbacks).
var attempts = []time.Duration{
	0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	// attemptTimeout bounds one attempt, from dialling to the end of the answer.
	attemptTimeout = 10 * time.Second

	// attemptLease is how long an attempt is claimed. It is longer than one can
	// take.
	attemptLease = 30 * time.Second

	// maxWalked is how many queues are read in one snapshot.
	maxWalked = 256

	// maxAnswer is how much of an answer is read, so that its connection can be
	// used again.
	maxAnswer = 64 << 10

	// maxTrouble bounds what is kept of an error.
	maxTrouble = 200
)

// sender sends the callbacks of the outbox.
type sender struct {
	engine *Engine
	wake   chan struct{}
	stop   chan struct{}
	once   sync.Once

	queues *callbackQueues
	walked time.Time // when all queues were read last
}

func newSender(e *Engine) *sender {
	return &sender{engine: e, wake: make(chan struct{}, 1), stop: make(chan struct{}), queues: newCallbackQueues()}
}

func (s *sender) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sender) halt() { s.once.Do(func() { close(s.stop) }) }

// run sends until halt.
func (s *sender) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-timer.C:
		}
		wait := idle
		if config := s.engine.config.Load(); config.Callbacks != nil && config.Client != nil {
			var err error
			wait, err = s.turn(config)
			if s.engine.store.Err() != nil { // until a restart nothing can be done
				return
			}
			if err != nil && s.engine.life.Err() == nil {
				s.engine.log.Error("sending callbacks", zap.Error(err))
				wait = time.Second
			}
		}
		timer.Reset(max(wait, time.Millisecond))
	}
}

// due has a callback of a key sent when its time has come.
func (s *sender) due(user, key string, at int64) {
	s.queues.due(user, key, at)
	s.nudge()
}

// claim is a callback that is going to be sent.
type claim struct {
	*eventRecord
	queue *callbackQueue
}

// turn begins the attempts that are due, and returns when the next is.
func (s *sender) turn(config *config) (wait time.Duration, err error) {
	if err := s.walk(); err != nil {
		return 0, err
	}
	now := s.engine.now()
	given, next := s.queues.grant(now)
	if len(given) == 0 { // what has no slot waits for the next that ends, which nudges
		return time.Duration(min(next-now, idle.Milliseconds())) * time.Millisecond, nil
	}
	var claimed []claim
	first := make([]int64, len(given)) // when each is due again
	err = s.engine.update(s.engine.life, func(t storage.Txn) error {
		claimed = nil
		for i, g := range given {
			all, next, err := s.claim(t, g)
			if err != nil {
				return err
			}
			first[i] = next
			for _, v := range all {
				claimed = append(claimed, claim{v, g.callbackQueue})
			}
		}
		return nil
	})
	if err != nil {
		for _, g := range given {
			s.queues.returnSlots(g.callbackQueue, now, g.slots)
		}
		return 0, err
	}
	used := make(map[*callbackQueue]int)
	for _, c := range claimed {
		used[c.queue]++
	}
	for i, g := range given {
		s.queues.returnSlots(g.callbackQueue, first[i], g.slots-used[g.callbackQueue])
	}
	for _, c := range claimed {
		s.engine.steps.Go(func() {
			defer func() { s.queues.returnSlots(c.queue, never, 1); s.nudge() }()
			s.attempt(config, c.eventRecord)
		})
	}
	return 0, nil
}

// claim claims due callbacks of a queue, at most as many as it has slots. It returns when the next
// is due: a claimed one when its lease ends.
func (s *sender) claim(t storage.Txn, g grant) (claimed []*eventRecord, next int64, err error) {
	now := s.engine.now()
	in := eventDue.Under(g.user.id, g.key)
	keys, err := in.Before(g.user.id, g.key, now+1).Keys(t, g.slots)
	if err != nil {
		return nil, 0, err
	}
	for _, key := range keys {
		mine := false
		v, err := changeEvent(t, lastID(key), func(v *eventRecord) bool {
			if mine = v.Due != 0 && v.Due <= now; mine {
				v.Fence++
				v.Owner, v.Due = s.engine.id, now+attemptLease.Milliseconds()
			}
			return mine
		})
		if err != nil {
			return nil, 0, err
		}
		if mine {
			claimed = append(claimed, v)
		} else if err := t.Delete(key); err != nil { // nothing leads to what is not so
			return nil, 0, err
		}
	}
	keys, err = in.Keys(t, 1)
	if err != nil || len(keys) == 0 {
		return claimed, never, err
	}
	return claimed, timeBefore(keys[0]), nil
}

// walk reads all queues from the store: at the start, and now and then, since another node may have
// left some. It skips from queue to queue, however many callbacks they have.
func (s *sender) walk() error {
	if !s.walked.IsZero() && time.Since(s.walked) < idle {
		return nil
	}
	in := eventDue.Under()
	for more := true; more; {
		err := s.engine.view(s.engine.life, func(r storage.Reader) error {
			for range maxWalked {
				keys, err := in.Keys(r, 1)
				if more = err == nil && len(keys) > 0; !more {
					return err
				}
				user, key, is := callbackQueueOf(keys[0])
				if !is { // no code writes such a key; Verify reports it
					in = in.FromKey(append(keys[0], 0))
					continue
				}
				s.queues.due(user, key, timeBefore(keys[0]))
				_, behind := eventDue.Under(user, key).Bounds()
				in = in.FromKey(behind)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	s.walked = time.Now()
	return nil
}

// callbackQueueOf returns the user and the API key in a key of the outbox.
func callbackQueueOf(due []byte) (user, key string, is bool) {
	name := due[min(len(due), len(eventDuePrefix)+1):]
	name = name[:max(0, len(name)-len("/12345678/")-idSize)]
	user, key, is = strings.Cut(string(name), "/")
	return user, key, is && user != "" && key != ""
}

// attempt sends one callback, and notes what came of it.
func (s *sender) attempt(config *config, v *eventRecord) {
	e := s.engine
	var address Address
	var has bool
	var rec *record
	err := e.view(e.life, func(r storage.Reader) (err error) {
		if rec, err = readTask(r, v.Task); err != nil || rec == nil {
			return err
		}
		address, has, err = config.Callbacks.Address(r, v.Key)
		return err
	})
	if err != nil || rec == nil {
		e.log.Warn("a callback cannot be read, it is tried again", zap.String("task_id", v.Task), zap.Error(err))
		return
	}
	var status int
	trouble := errors.New("the API key has no callback address")
	if has {
		var body []byte
		if body, trouble = rec.body(); trouble == nil {
			status, trouble = post(e.life, config.Client, address, eventID(v.Task), e.store.Now(), body)
		}
		if e.life.Err() != nil {
			return // it was not the receiver's fault
		}
	}
	var after *eventRecord // nil: another engine has claimed the callback
	var gone *audit.Event  // nil: its address is used further
	noted := e.durably("noting a callback", v.Task, func(ctx context.Context) error {
		return e.update(ctx, func(t storage.Txn) error {
			mine := false
			gone = nil
			have, err := changeEvent(t, v.Task, func(now *eventRecord) bool {
				if mine = now.Fence == v.Fence && now.Owner == v.Owner && now.State == Undelivered; mine {
					now.note(e.now(), has, address.URL, status, trouble)
				}
				return mine
			})
			if err == nil && mine && status == http.StatusGone {
				gone, err = config.Callbacks.Disable(t, e.store.Now(), v.Key, address.URL)
			}
			if after = nil; mine {
				after = have
			}
			return err
		})
	})
	if noted && gone != nil {
		e.opts.OnAudit(*gone)
	}
	if noted && after != nil {
		e.figures.noted(after.State)
		if after.Due != 0 {
			s.due(v.User, v.Key, after.Due)
		}
	}
}

// note writes down what came of an attempt. One is ended by a 2xx; by 410, by
// the last attempt, and where there is no address to send it to, it is dead.
func (v *eventRecord) note(now int64, sent bool, url string, status int, trouble error) {
	v.Last, v.Status, v.Trouble, v.URL = now, status, "", url
	if sent {
		v.Attempts++
		v.Sent++
	}
	switch {
	case trouble == nil:
		v.State, v.Due, v.Ended = Delivered, 0, now
		return
	case status == http.StatusGone, !sent, v.Attempts >= len(attempts):
		v.State, v.Due, v.Ended = Dead, 0, now
	default:
		v.Due = now + jitter(attempts[v.Attempts]).Milliseconds()
	}
	v.Trouble = trouble.Error()
	if len(v.Trouble) > maxTrouble {
		v.Trouble = v.Trouble[:maxTrouble]
	}
}

// post sends a callback once. The error is nil exactly for a 2xx. It does not
// say what came of dialling: what stands behind an address is not the caller's
// to find out.
func post(ctx context.Context, client *http.Client, address Address, id string, at time.Time, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the address is no URL")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "modelgate")
	if err := sign(request.Header, address.Secrets, id, at, body); err != nil {
		return 0, err
	}
	once := *client
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	once.Jar = nil
	response, err := once.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return 0, errors.New("the receiver did not answer in 10 s")
		}
		return 0, errors.New("the receiver cannot be reached")
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswer)
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return response.StatusCode, errors.New("the receiver answered " + strconv.Itoa(response.StatusCode))
	}
	return response.StatusCode, nil
}

// Test sends an event of the type callback.test to the address of a key of a
// user, once, and returns what it was answered.
func (e *Engine) Test(ctx context.Context, actor, user, key string) (Callback, error) {
	config := e.config.Load()
	var address Address
	var has bool
	err := e.audited(ctx, &audit.Event{Actor: actor, Action: "callback.test", User: user, Key: key}, func(t storage.Txn) (bool, error) {
		if config.Callbacks == nil || config.Client == nil {
			return false, nil
		}
		var err error
		address, has, err = config.Callbacks.Address(t, key)
		return has, err
	})
	if err != nil {
		return Callback{}, err
	}
	if !has {
		return Callback{}, fault.New(fault.NotFound, "this API key has no callback address")
	}
	now := e.store.Now()
	body, err := json.Marshal(payload{eventTest, now.Unix(), struct{}{}})
	if err != nil {
		return Callback{}, err
	}
	d := Callback{ID: "evt_" + rand.Text(), Key: key, State: Delivered, Created: now.Unix(), Attempts: 1, Last: now.Unix(), URL: address.URL}
	if d.Status, err = post(ctx, config.Client, address, d.ID, now, body); err != nil {
		d.State, d.Trouble = Dead, err.Error()
	}
	return d, nil
}

// redeliveryFor is how long after its end a callback can be sent again
// (docs/reference/tasks.md#callbacks).
const redeliveryFor = 7 * 24 * time.Hour

// Redeliver sends the callback of a task again, in a new round of attempts. That
// is so for 7 days after it was delivered or given up.
func (e *Engine) Redeliver(ctx context.Context, actor string, owner Owner, task string) (Callback, error) {
	var after *eventRecord
	event := audit.Event{Actor: actor, Action: "callback.redeliver", Detail: task}
	err := e.audited(ctx, &event, func(t storage.Txn) (bool, error) {
		v, err := readEvent(t, task)
		if err != nil {
			return false, err
		}
		now := e.now()
		if v == nil || !owner.owns(v.Key, v.User) {
			return false, fault.New(fault.NotFound, "there is no callback of this task")
		}
		event.User, event.Key = v.User, v.Key
		if v.State != Undelivered && now >= v.Ended+redeliveryFor.Milliseconds() {
			return false, fault.New(fault.Conflict, "a callback can be sent again for 7 days")
		}
		after, err = changeEvent(t, task, func(v *eventRecord) bool {
			v.State, v.Attempts, v.Due, v.Ended = Undelivered, 0, now, 0
			v.Fence++
			return true
		})
		return true, err
	})
	if err != nil {
		return Callback{}, err
	}
	e.callbackDue(after.User, after.Key, after.Due)
	return after.callback(), nil
}
