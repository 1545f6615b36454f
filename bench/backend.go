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

// wantHeader tells the backend how to answer; without it, with JSON. The
// gateway passes it because its configuration says so.
const (
	wantHeader = "Bench-Want"
	wantStream = "stream" // events at eventPace
	wantIdle   = "idle"   // the head and one event, then silence
)

// serveBackend is the process behind the proxies: a plain net/http server that
// costs as little as one can. It prints its address and serves until it is
// killed.
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

// backend answers every call like a model.
type backend struct {
	choir  *choir
	studio http.Handler
}

func newBackend() *backend {
	studio := http.NewServeMux()
	newStudio().routes(studio)
	return &backend{newChoir(), studio}
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isStudio(r.URL.Path) {
		b.studio.ServeHTTP(w, r)
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

// stream sends events until the caller leaves.
func (b *backend) stream(w http.ResponseWriter, r *http.Request) {
	s := b.choir.join()
	defer b.choir.leave(s)
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

// choir gives each stream its turn, evenly over the pace: with timers of their
// own the streams would bunch by chance, differently each time, and several
// events at once cost less than the same ones apart.
type choir struct {
	seats [streamCount]*seat
	free  chan *seat // holds those that are not taken

	mu      sync.Mutex
	singing bool
}

type seat struct {
	due chan struct{} // an event is to be sent now
}

func newChoir() *choir {
	c := &choir{free: make(chan *seat, streamCount)}
	for i := range c.seats {
		c.seats[i] = &seat{make(chan struct{}, 1)}
		c.free <- c.seats[i]
	}
	return c
}

// join takes a seat, once one is free.
func (c *choir) join() *seat {
	s := <-c.free
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.singing {
		c.singing = true
		go metronome(eventPace/streamCount, c.beat)
	}
	return s
}

func (c *choir) leave(s *seat) { c.free <- s }

// beat calls the next seat. It returns false when all are free.
func (c *choir) beat(beat int, _ time.Time) bool {
	select {
	case c.seats[beat%streamCount].due <- struct{}{}:
	default: // free or late; the count of events will tell
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.singing = len(c.free) < streamCount
	return c.singing
}

// metronome calls fn at even times from now on, until it returns false, and
// tells it when its time was. It does not skip beats: after a late one the next
// come at once, with the times that were theirs.
func metronome(every time.Duration, fn func(beat int, due time.Time) bool) {
	takeThread() // which ends with this goroutine
	start := time.Now()
	for beat := 0; ; beat++ {
		due := start.Add(time.Duration(beat) * every)
		sleepUntil(due)
		if !fn(beat, due) {
			return
		}
	}
}
