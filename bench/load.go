package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// job is the load that the generator produces. The table of measures names it.
type job struct {
	Kind        kind
	Connections int    // for streams and idle: number of streams
	Body        []byte // body of each call
	Rate        int    // calls a second; for paced
	Whole       bool   // include the CPU time until the process is idle again
}

// kind is a kind of load.
type kind string

const (
	saturate kind = "saturate" // each connection sends its next call after the answer
	paced    kind = "paced"    // calls are sent at even intervals, independent of answers
	streams  kind = "streams"  // streams of events
	idle     kind = "idle"     // streams without events after the first
)

// order is a job with everything that its process needs.
type order struct {
	Job     job
	Targets [2]target // the reference and the gateway
	Turns   turns

	// Only for a long load on the gateway alone.
	Lasts time.Duration
	Store string // the directory of the gateway's store
}

// target is a running gateway.
type target struct {
	Address   string
	PID       int
	Keys      []string // API keys, used by the connections in turn
	Reads     string   // path of the console that is read; Keys are session secrets then
	TaskPaths []string // paths that are queried, used by the connections in turn; none: models are called
}

// request returns the request of the nth connection.
func (t target) request(n int, want string, body []byte) []byte {
	if len(t.Keys) == 0 {
		return nil
	}
	key := t.Keys[n%len(t.Keys)]
	if t.Reads != "" {
		return consoleRead(t.Address, t.Reads, key)
	}
	if len(t.TaskPaths) > 0 {
		return taskQuery(t.Address, t.TaskPaths[n%len(t.TaskPaths)], key)
	}
	return request(t.Address, key, want, body)
}

// dial opens the nth connection.
func (t target) dial(ctx context.Context, n int, want string, body []byte) (*line, error) {
	line, err := dial(ctx, t.Address, t.request(n, want, body))
	if err == nil && (t.Reads != "" || len(t.TaskPaths) > 0) {
		line.size = anySize
	}
	return line, err
}

// dialAll opens n connections. If there are more sessions than connections,
// each connection uses its share of them in turn.
func (t target) dialAll(ctx context.Context, connections int, want string, body []byte) (lines []*line, err error) {
	for n := range connections {
		line, err := t.dial(ctx, n, want, body)
		if err != nil {
			return lines, err
		}
		lines = append(lines, line)
		for next := n + connections; t.Reads != "" && next < len(t.Keys); next += connections {
			line.others = append(line.others, t.request(next, want, body))
		}
	}
	return lines, nil
}

// serveLoad is the role that loads gateways.
func serveLoad(in io.Reader, out io.Writer) error {
	return serveOrder(in, out, func(ctx context.Context, o order) (pair, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*o.Turns.length()+6*o.Lasts+3*time.Minute)
		defer cancel()
		if o.Lasts > 0 {
			return o.last(ctx)
		}
		if o.Job.Whole {
			return o.loadWhole(ctx)
		}
		if o.Job.Kind == idle {
			return o.fill(ctx)
		}
		return o.takeTurns(ctx)
	})
}

// takeTurns loads the targets alternately, in short slices.
func (o order) takeTurns(ctx context.Context) (p pair, err error) {
	var loads [2]*load
	for n, t := range o.Targets {
		loads[n] = &load{order: o, target: t}
		defer loads[n].closeConnections()
		if err := loads[n].slice(ctx, o.Turns.Warm); err != nil {
			return p, err
		}
		loads[n].discardSamples()
	}
	for range o.Turns.Rounds {
		for _, l := range loads {
			if err := l.slice(ctx, o.Turns.Slice); err != nil {
				return p, err
			}
		}
	}
	for n, l := range loads {
		if p[n], err = l.sample(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// load is one target under load.
type load struct {
	order
	target
	lines []*line
	timed bool // record the duration of each call of a saturated target

	units     atomic.Int64
	cpu       time.Duration
	mu        sync.Mutex
	latencies []time.Duration
}

// slice loads the target for a while.
func (l *load) slice(ctx context.Context, d time.Duration) error {
	run := map[kind]func(context.Context, time.Duration) error{
		saturate: l.saturate, paced: l.pace, streams: l.stream,
	}[l.Job.Kind]
	if run == nil {
		return fmt.Errorf("there is no kind of load %q", l.Job.Kind)
	}
	if err := l.ready(ctx); err != nil {
		return err
	}
	before, err := cpuTime(l.PID)
	if err != nil {
		return err
	}
	if err := run(ctx, d); err != nil {
		return err
	}
	after, err := cpuTime(l.PID)
	l.cpu += after - before
	if l.Job.Kind == streams {
		l.closeConnections() // otherwise they would continue in the other target's turn
	}
	return err
}

// ready opens the connections and their streams.
func (l *load) ready(ctx context.Context) error {
	if l.lines != nil {
		return nil
	}
	want := ""
	if l.Job.Kind == streams {
		want = wantStream
	}
	var err error
	if l.lines, err = l.dialAll(ctx, l.Job.Connections, want, l.Job.Body); err != nil || l.Job.Kind != streams {
		return err
	}
	for _, line := range l.lines {
		if err := line.open(); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) closeConnections() {
	for _, line := range l.lines {
		line.close()
	}
	l.lines = nil
}

// discardSamples discards the samples of the warm-up.
func (l *load) discardSamples() {
	l.units.Store(0)
	l.cpu = 0
	l.latencies = l.latencies[:0]
}

// took records the duration of a call.
func (l *load) took(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latencies = append(l.latencies, d)
}

func (l *load) sample() (s sample, err error) {
	s.Units, s.CPU = l.units.Load(), l.cpu
	if s.Units == 0 {
		return s, errors.New("no call was answered")
	}
	if n := len(l.latencies); n > 0 {
		slices.Sort(l.latencies)
		s.P50, s.P99 = l.latencies[n/2], l.latencies[n*99/100]
	}
	s.Resident, err = resident(l.PID)
	return s, err
}

// each calls fn for every line on its own goroutine and waits for all calls. If
// one fails, it ends the others.
func (l *load) each(fn func(*line) error) error {
	ended := make(chan error, len(l.lines))
	for _, line := range l.lines {
		go func() { ended <- fn(line) }()
	}
	var first error
	for range l.lines {
		if err := <-ended; err != nil && first == nil {
			first = err
			for _, line := range l.lines {
				line.close()
			}
		}
	}
	return first
}

// saturate keeps every connection busy.
func (l *load) saturate(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	return l.each(func(line *line) error {
		for time.Now().Before(end) && ctx.Err() == nil {
			began := time.Now()
			if err := line.call(); err != nil {
				return err
			}
			l.units.Add(1)
			if l.timed {
				l.took(time.Since(began))
			}
		}
		return ctx.Err()
	})
}

// pace sends calls at even intervals. The latency of a call is counted from its
// due time, so that a slow answer also counts for the calls that it delays.
func (l *load) pace(ctx context.Context, d time.Duration) error {
	free := make(chan *line, len(l.lines))
	for _, line := range l.lines {
		line.sent = make(chan time.Time, 1)
		free <- line
	}
	beats := int(d.Seconds() * float64(l.Job.Rate))
	go metronome(time.Second/time.Duration(l.Job.Rate), func(beat int, due time.Time) bool {
		if beat < beats {
			select {
			case line := <-free:
				line.sent <- due
				_ = line.send() // if it fails, so does reading the answer
				return true
			case <-ctx.Done():
			}
		}
		for _, line := range l.lines {
			close(line.sent)
		}
		return false
	})
	return l.each(func(line *line) error {
		for due := range line.sent {
			if err := line.answer(); err != nil {
				return err
			}
			took := time.Since(due)
			free <- line
			l.took(took)
			l.units.Add(1)
		}
		return ctx.Err()
	})
}

// stream reads the events of all streams.
func (l *load) stream(ctx context.Context, d time.Duration) error {
	before, end := l.units.Load(), time.Now().Add(d)
	err := l.each(func(line *line) error {
		for time.Now().Before(end) {
			if err := line.event(); err != nil {
				return err
			}
			l.units.Add(1)
		}
		return ctx.Err()
	})
	due := int64(d/eventPace) * int64(len(l.lines))
	if arrived := l.units.Load() - before; err == nil && arrived < due*9/10 {
		err = fmt.Errorf("%d events arrived, %d were due: this machine is too busy for a comparison", arrived, due)
	}
	return err
}

// settling is the time before memory is read.
const settling = time.Second

// fill opens streams, each with one event, and measures how much each target
// grew since a little traffic.
func (o order) fill(ctx context.Context) (p pair, err error) {
	for n, t := range o.Targets {
		few := o
		few.Job.Kind, few.Job.Connections = saturate, 8
		l := &load{order: few, target: t}
		defer func() { l.closeConnections() }()
		if err := l.slice(ctx, settling); err != nil {
			return p, err
		}
		before, err := settled(ctx, t)
		if err != nil {
			return p, err
		}
		l.closeConnections()

		for c := range o.Job.Connections {
			line, err := dial(ctx, t.Address, t.request(c, wantIdle, o.Job.Body))
			if err != nil {
				return p, err
			}
			l.lines = append(l.lines, line)
			if err := line.open(); err != nil {
				return p, err
			}
		}
		if p[n].Resident, err = settled(ctx, t); err != nil {
			return p, err
		}
		p[n].Units, p[n].Grown = int64(len(l.lines)), p[n].Resident-before
		l.closeConnections()
	}
	return p, nil
}

// settled returns the memory of a target after that time.
func settled(ctx context.Context, t target) (int64, error) {
	if err := pause(ctx, settling); err != nil {
		return 0, err
	}
	return resident(t.PID)
}
