package callback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
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

// attempts are the pauses before each attempt since the previous one
// (docs/reference/tasks.md#callbacks).
var attempts = []time.Duration{
	0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	// attemptTimeout is the timeout of one attempt, from dialling to the end of the response.
	attemptTimeout = 10 * time.Second

	// attemptLease is the duration of the claim of an attempt. It is longer than
	// attemptTimeout.
	attemptLease = 30 * time.Second

	// maxQueuesRead is how many queues are read in one snapshot.
	maxQueuesRead = 256

	// maxAnswer is how many bytes of a response are read, so that the connection can
	// be reused.
	maxAnswer = 64 << 10

	// maxTrouble is the maximum length of a stored error, in bytes.
	maxTrouble = 200
)

// Sender sends the callbacks of the outbox. Its methods may be called concurrently.
type Sender struct {
	store *record.Store
	to    atomic.Pointer[destination] // never nil

	*record.Worker
	start sync.Once

	queues     *queues
	queuesRead time.Time // when all queues were read last
	readAgain  atomic.Bool

	delivered, retried, dead atomic.Int64
}

// destination has the addresses of callbacks and the client that sends them.
type destination struct {
	addresses Addresses // nil: nothing is sent
	client    *http.Client
}

// NewSender returns the sender of a store. It sends nothing until [Sender.Serve].
func NewSender(store *record.Store) *Sender {
	s := &Sender{store: store, Worker: store.Worker("sending callbacks"), queues: newQueues()}
	s.to.Store(new(destination))
	return s
}

// Serve starts sending callbacks to these addresses, or changes the addresses; nil: nothing is sent.
// The client must dial only permitted addresses. Redirects are never followed.
func (s *Sender) Serve(addresses Addresses, client *http.Client) {
	s.to.Store(&destination{addresses, client})
	s.start.Do(func() { s.store.Steps.Go(func() { s.Run(s.runOnce) }) })
	s.Nudge()
}

// HasAddress reports whether an API key has a callback address in use.
func (s *Sender) HasAddress(r storage.Reader, key string) (has bool, err error) {
	_, has, err = s.to.Load().address(r, key)
	return has, err
}

func (to *destination) address(r storage.Reader, key string) (Address, bool, error) {
	if to.addresses == nil {
		return Address{}, false, nil
	}
	return to.addresses.Address(r, key)
}

// Counts returns how many callbacks were delivered since the process started, how many attempts
// failed and are repeated, and how many callbacks are dead.
func (s *Sender) Counts() (delivered, retried, dead int64) {
	return s.delivered.Load(), s.retried.Load(), s.dead.Load()
}

// Due schedules a callback of an API key at a time in Unix milliseconds.
func (s *Sender) Due(user, key string, at int64) {
	s.queues.due(user, key, at)
	s.Nudge()
}

// runOnce starts the attempts that are due, and returns how long to wait for the next.
func (s *Sender) runOnce() (wait time.Duration, err error) {
	to := s.to.Load()
	if to.addresses == nil {
		return record.Idle, nil
	}
	if err := s.readQueues(); err != nil {
		return 0, err
	}
	now := s.store.Milli()
	given, next := s.queues.grant(now)
	if len(given) == 0 { // if no slot is free, an attempt that ends nudges the sender
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

// claim claims due callbacks of a queue, at most one for each of its slots. It returns when the next
// callback is due; a claimed one is due when its lease ends.
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
		} else if err := t.Delete(key); err != nil { // the key does not match its record
			return nil, 0, err
		}
	}
	keys, err = in.Keys(t, 1)
	if err != nil || len(keys) == 0 {
		return claimed, never, err
	}
	return claimed, record.TimeBefore(keys[0]), nil
}

// readQueues reads all queues from the store, at the start and then every [record.Idle]: another node
// may have left some. It reads one key of each queue.
func (s *Sender) readQueues() error {
	again := s.readAgain.Swap(false)
	if !again && !s.queuesRead.IsZero() && time.Since(s.queuesRead) < record.Idle {
		return nil
	}
	in := record.EventsDue.Under()
	for more := true; more; {
		err := s.store.View(s.store.Life, func(r storage.Reader) error {
			for range maxQueuesRead {
				keys, err := in.Keys(r, 1)
				if more = err == nil && len(keys) > 0; !more {
					return err
				}
				user, key, ok := queueOf(keys[0])
				if !ok { // no code writes such a key; Verify reports it
					in = in.FromKey(append(keys[0], 0))
					continue
				}
				s.queues.due(user, key, record.TimeBefore(keys[0])+s.store.Yield(record.LastID(keys[0])).Milliseconds())
				_, behind := record.EventsDue.Under(user, key).Bounds()
				in = in.FromKey(behind)
			}
			return nil
		})
		if err != nil {
			s.readAgain.Store(again)
			return err
		}
	}
	s.queuesRead = time.Now()
	return nil
}

// ReadAgain makes the sender read all queues, because another node has left callbacks.
func (s *Sender) ReadAgain() {
	s.readAgain.Store(true)
	s.Nudge()
}

// FreeClaims makes the callbacks due that an owner was sending. The epoch of the owner must have ended.
func (s *Sender) FreeClaims(ctx context.Context, owner string) error {
	var claimed []string
	err := s.store.View(ctx, func(r storage.Reader) error {
		claimed = nil
		now := s.store.Milli()
		for v, err := range record.Events.Scan(r, record.EventsDue.Under()) {
			switch {
			case errors.Is(err, storage.ErrUnreadable):
			case err != nil:
				return err
			case v.Owner == owner && v.Due > now:
				claimed = append(claimed, v.Task)
			}
		}
		return nil
	})
	for some := range slices.Chunk(claimed, maxFreed) {
		if err != nil {
			break
		}
		err = s.store.Update(ctx, func(t storage.Txn) error {
			for _, task := range some {
				_, err := record.Events.Change(t, table.Key{task}, func(v *record.Event) bool {
					mine := v.Owner == owner && v.State == record.Undelivered
					v.Owner, v.Due = "", s.store.Milli()
					return mine
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return err
}

// maxFreed is how many callbacks FreeClaims changes in one transaction.
const maxFreed = 256

// queueOf returns the user and the API key in an index key of the outbox.
func queueOf(due []byte) (user, key string, ok bool) {
	name := due[min(len(due), len(record.EventDuePrefix)+1):]
	name = name[:max(0, len(name)-len("/12345678/")-record.IDSize)]
	user, key, ok = strings.Cut(string(name), "/")
	return user, key, ok && user != "" && key != ""
}

// attempt sends one callback and writes the result.
func (s *Sender) attempt(to *destination, v *record.Event) {
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
		s.store.Log.Warn("cannot read a callback: it is tried again", zap.String("task_id", v.Task), zap.Error(err))
		return
	}
	if s.store.Ready() != nil {
		return // this node may have been ended; the callback is due again when its lease ends
	}
	var status int
	trouble := errors.New("the API key has no callback address")
	if has {
		var body []byte
		if body, trouble = bodyOf(rec); trouble == nil {
			status, trouble = post(s.store.Life, to.client, address, EventID(v.Task), s.store.Now(), body)
		}
		if s.store.Life.Err() != nil {
			return // the engine has ended: the receiver has not failed
		}
	}
	var after *record.Event // nil: another engine has claimed the callback
	var gone *audit.Event   // set if the address was disabled
	recorded := s.store.Durably("write the result of a callback", v.Task, func(ctx context.Context) error {
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
	if recorded && gone != nil {
		s.store.OnAudit(*gone)
	}
	if !recorded || after == nil {
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

// note sets the result of an attempt. A 2xx ends the callback. It is dead after a
// 410, after the last attempt, and if there is no address.
func note(v *record.Event, now int64, sent bool, url string, status int, trouble error) {
	v.Last, v.Status, v.Trouble, v.URL, v.Owner = now, status, "", url, ""
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

// post sends a callback once. The error is nil only for a 2xx. It does not repeat
// errors of dialling, so that users cannot probe networks by callback addresses.
func post(ctx context.Context, client *http.Client, address Address, id string, at time.Time, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the address is not a URL")
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
