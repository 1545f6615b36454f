package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// wantHeader selects the form of the answer. Without it, the answer is JSON.
// The gateway passes the header because its configuration allows it.
const (
	wantHeader = "Bench-Want"
	wantStream = "stream" // events at eventPace
	wantIdle   = "idle"   // the header and one event, then nothing
)

// serveBackend runs the process behind the proxies: a plain net/http server
// that uses as little CPU as possible. It prints its address and serves until
// it is killed.
func serveBackend(_ io.Reader, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, listener.Addr()); err != nil {
		return err
	}
	server := &http.Server{Handler: newBackend(), ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}

// backend answers every call like a model, and serves the [mockService].
type backend struct {
	eventClock  *eventClock
	mockService http.Handler
}

func newBackend() *backend {
	mockService := http.NewServeMux()
	newMockService().routes(mockService)
	return &backend{newEventClock(), mockService}
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isMockService(r.URL.Path) {
		b.mockService.ServeHTTP(w, r)
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	header := w.Header()
	header["Request-Id"] = []string{"req_011CSHoEeqs5C35K2UUqR7Fy"}
	switch r.Header.Get(wantHeader) {
	case wantStream:
		header["Content-Type"] = []string{"text/event-stream; charset=utf-8"}
		b.stream(w, r)
	case wantIdle:
		header["Content-Type"] = []string{"text/event-stream; charset=utf-8"}
		if send(w, eventStart) {
			<-r.Context().Done()
		}
	default:
		header["Content-Type"] = []string{"application/json"}
		header["Content-Length"] = []string{strconv.Itoa(len(answerJSON))}
		_, _ = w.Write(answerJSON)
	}
}

// stream sends events until the client disconnects.
func (b *backend) stream(w http.ResponseWriter, r *http.Request) {
	s := b.eventClock.join()
	defer b.eventClock.leave(s)
	if !send(w, eventStart) {
		return
	}
	for {
		select {
		case <-s.due:
			if !send(w, eventDelta) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func send(w http.ResponseWriter, event []byte) bool {
	if _, err := w.Write(event); err != nil {
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}

const (
	eventPace   = 5 * time.Millisecond // between two events of one stream
	streamCount = 20                   // streams at once
)

// eventClock spreads the events of all streams evenly over eventPace. With a
// timer of its own for each stream, events would coincide by chance,
// differently in each run, and several events at once cost less than the same
// events apart.
type eventClock struct {
	slots [streamCount]*slot
	free  chan *slot // the slots that are not taken

	mu      sync.Mutex
	running bool
}

type slot struct {
	due chan struct{} // receives when an event must be sent
}

func newEventClock() *eventClock {
	c := &eventClock{free: make(chan *slot, streamCount)}
	for i := range c.slots {
		c.slots[i] = &slot{make(chan struct{}, 1)}
		c.free <- c.slots[i]
	}
	return c
}

// join takes a slot. It blocks until one is free.
func (c *eventClock) join() *slot {
	s := <-c.free
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		c.running = true
		go metronome(eventPace/streamCount, c.beat)
	}
	return s
}

func (c *eventClock) leave(s *slot) { c.free <- s }

// beat signals the next slot. It returns false if all slots are free.
func (c *eventClock) beat(beat int, _ time.Time) bool {
	select {
	case c.slots[beat%streamCount].due <- struct{}{}:
	default: // free or late; the number of events shows it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = len(c.free) < streamCount
	return c.running
}

// metronome calls fn at even intervals from now on with the time that was due,
// until fn returns false. It does not skip intervals: after a late call it
// makes the missed calls at once, each with its own due time.
func metronome(every time.Duration, fn func(beat int, due time.Time) bool) {
	takeThread() // the thread ends with this goroutine
	start := time.Now()
	for beat := 0; ; beat++ {
		due := start.Add(time.Duration(beat) * every)
		sleepUntil(due)
		if !fn(beat, due) {
			return
		}
	}
}
