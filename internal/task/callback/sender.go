package callback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
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

// Sender sends the callbacks of the outbox. Its methods may be called concurrently.
type Sender struct {
	store *record.Store
	to    atomic.Pointer[sending] // never nil

	*record.Worker
	start sync.Once

	queues *queues
	walked time.Time // when all queues were read last

	delivered, retried, dead atomic.Int64
}

// sending is where callbacks are sent, and by what.
type sending struct {
	addresses Addresses // nil: nowhere
	client    *http.Client
}

// NewSender returns the sender of a store. It sends nothing until [Sender.Serve].
func NewSender(store *record.Store) *Sender {
	s := &Sender{store: store, Worker: store.Worker("sending callbacks"), queues: newQueues()}
	s.to.Store(new(sending))
	return s
}

// Serve has callbacks sent to these addresses from now on; nil: to none. The client dials only what
// may be dialled. Redirects are not followed, whatever it says.
func (s *Sender) Serve(addresses Addresses, client *http.Client) {
	s.to.Store(&sending{addresses, client})
	s.start.Do(func() { s.store.Steps.Go(func() { s.Run(s.turn) }) })
	s.Nudge()
}

// HasAddress reports whether the callbacks of an API key are sent.
func (s *Sender) HasAddress(r storage.Reader, key string) (has bool, err error) {
	_, has, err = s.to.Load().address(r, key)
	return has, err
}

func (to *sending) address(r storage.Reader, key string) (Address, bool, error) {
	if to.addresses == nil {
		return Address{}, false, nil
	}
	return to.addresses.Address(r, key)
}

// Counts returns how many callbacks were delivered since the process began, how many attempts
// failed and are made again, and how many callbacks were given up.
func (s *Sender) Counts() (delivered, retried, dead int64) {
	return s.delivered.Load(), s.retried.Load(), s.dead.Load()
}

// Due has a callback of an API key sent when it is due, in Unix milliseconds.
func (s *Sender) Due(user, key string, at int64) {
	s.queues.due(user, key, at)
	s.Nudge()
}

// turn begins the attempts that are due, and returns when the next is.
func (s *Sender) turn() (wait time.Duration, err error) {
	to := s.to.Load()
	if to.addresses == nil {
		return record.Idle, nil
	}
	if err := s.walk(); err != nil {
		return 0, err
	}
	now := s.store.Milli()
	given, next := s.queues.grant(now)
	if len(given) == 0 { // what has no slot waits for the next that ends, which nudges
		return time.Duration(min(next-now, record.Idle.Milliseconds())) * time.Millisecond, nil
	}
	claims := make([]struct {
		all  []*record.Event
		next int64 // when the queue is due again
	}, len(given))
	err = s.store.Update(s.store.Life, func(t storage.Txn) (err error) {
		for i, g := range given {
			if claims[i].all, claims[i].next, err = s.claim(t, g); err != nil {
				break
			}
		}
		return err
	})
	if err != nil {
		for _, g := range given {
			s.queues.returnSlots(g.queue, now, g.slots)
		}
		return 0, err
	}
	for i, g := range given {
		s.queues.returnSlots(g.queue, claims[i].next, g.slots-len(claims[i].all))
		for _, v := range claims[i].all {
			s.store.Steps.Go(func() {
				defer func() { s.queues.returnSlots(g.queue, never, 1); s.Nudge() }()
				s.attempt(to, v)
			})
		}
	}
	return 0, nil
}

// claim claims due callbacks of a queue, at most as many as it has slots. It returns when the next
// is due: a claimed one when its lease ends.
func (s *Sender) claim(t storage.Txn, g grant) (claimed []*record.Event, next int64, err error) {
	now := s.store.Milli()
	in := record.EventsDue.Under(g.user.id, g.key)
	keys, err := in.Before(g.user.id, g.key, now+1).Keys(t, g.slots)
	if err != nil {
		return nil, 0, err
	}
	for _, key := range keys {
		v, err := record.Events.Change(t, table.Key{record.LastID(key)}, func(v *record.Event) bool {
			if v.Due == 0 || v.Due > now {
				return false
			}
			v.Fence++
			v.Owner, v.Due = s.store.Engine, now+attemptLease.Milliseconds()
			return true
		})
		if err != nil {
			return nil, 0, err
		}
		if v != nil {
			claimed = append(claimed, v)
		} else if err := t.Delete(key); err != nil { // nothing leads to what is not so
			return nil, 0, err
		}
	}
	keys, err = in.Keys(t, 1)
	if err != nil || len(keys) == 0 {
		return claimed, never, err
	}
	return claimed, record.TimeBefore(keys[0]), nil
}

// walk reads all queues from the store: at the start, and now and then, since another node may have
// left some. It skips from queue to queue, however many callbacks they have.
func (s *Sender) walk() error {
	if !s.walked.IsZero() && time.Since(s.walked) < record.Idle {
		return nil
	}
	in := record.EventsDue.Under()
	for more := true; more; {
		err := s.store.View(s.store.Life, func(r storage.Reader) error {
			for range maxWalked {
				keys, err := in.Keys(r, 1)
				if more = err == nil && len(keys) > 0; !more {
					return err
				}
				user, key, is := queueOf(keys[0])
				if !is { // no code writes such a key; Verify reports it
					in = in.FromKey(append(keys[0], 0))
					continue
				}
				s.queues.due(user, key, record.TimeBefore(keys[0]))
				_, behind := record.EventsDue.Under(user, key).Bounds()
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

// queueOf returns the user and the API key in a key of the outbox.
func queueOf(due []byte) (user, key string, is bool) {
	name := due[min(len(due), len(record.EventDuePrefix)+1):]
	name = name[:max(0, len(name)-len("/12345678/")-record.IDSize)]
	user, key, is = strings.Cut(string(name), "/")
	return user, key, is && user != "" && key != ""
}

// attempt sends one callback, and notes what came of it.
func (s *Sender) attempt(to *sending, v *record.Event) {
	var address Address
	var has bool
	var rec *record.Record
	err := s.store.View(s.store.Life, func(r storage.Reader) (err error) {
		if rec, err = record.Tasks.Get(r, v.Task); err != nil || rec == nil {
			return err
		}
		address, has, err = to.address(r, v.Key)
		return err
	})
	if err != nil || rec == nil {
		s.store.Log.Warn("a callback cannot be read, it is tried again", zap.String("task_id", v.Task), zap.Error(err))
		return
	}
	var status int
	trouble := errors.New("the API key has no callback address")
	if has {
		var body []byte
		if body, trouble = bodyOf(rec); trouble == nil {
			status, trouble = post(s.store.Life, to.client, address, EventID(v.Task), s.store.Now(), body)
		}
		if s.store.Life.Err() != nil {
			return // it was not the receiver's fault
		}
	}
	var after *record.Event // nil: another engine has claimed the callback
	var gone *audit.Event   // nil: its address is used further
	noted := s.store.Durably("noting a callback", v.Task, func(ctx context.Context) error {
		return s.store.Update(ctx, func(t storage.Txn) (err error) {
			gone = nil
			after, err = record.Events.Change(t, table.Key{v.Task}, func(now *record.Event) bool {
				mine := now.Fence == v.Fence && now.Owner == v.Owner && now.State == record.Undelivered
				if mine {
					note(now, s.store.Milli(), has, address.URL, status, trouble)
				}
				return mine
			})
			if after != nil && err == nil && status == http.StatusGone {
				gone, err = to.addresses.Disable(t, s.store.Now(), v.Key, address.URL)
			}
			return err
		})
	})
	if noted && gone != nil {
		s.store.OnAudit(*gone)
	}
	if !noted || after == nil {
		return
	}
	switch after.State {
	case record.Delivered:
		s.delivered.Add(1)
	case record.Dead:
		s.dead.Add(1)
	default:
		s.retried.Add(1)
		s.Due(v.User, v.Key, after.Due)
	}
}

// note writes down what came of an attempt. One is ended by a 2xx; by 410, by
// the last attempt, and where there is no address to send it to, it is dead.
func note(v *record.Event, now int64, sent bool, url string, status int, trouble error) {
	v.Last, v.Status, v.Trouble, v.URL = now, status, "", url
	if sent {
		v.Attempts++
		v.Sent++
	}
	switch {
	case trouble == nil:
		v.State, v.Due, v.Ended = record.Delivered, 0, now
		return
	case status == http.StatusGone, !sent, v.Attempts >= len(attempts):
		v.State, v.Due, v.Ended = record.Dead, 0, now
	default:
		v.Due = now + record.Jitter(attempts[v.Attempts]).Milliseconds()
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
