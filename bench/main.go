// Command bench measures the gateway side by side with Caddy's bare
// reverse_proxy, in one run on one machine, and prints a table of what must
// hold, what is aimed at and what was measured. See README.md.
//
//	go run .
//	go run . -quick
//	go run . -write
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Roles in which this program starts itself again.
const (
	roleBackend = "backend"
	roleLoad    = "load"
)

// bench is one run of the benchmark.
type bench struct {
	pairs       int           // of each measure
	rounds      int           // of a pair
	warm, slice time.Duration // before the rounds, and of each round on each side
	profiles    string        // directory for CPU profiles; empty for none

	dir     string // temporary, for everything
	self    string // this program
	caddy   string // the build under test
	backend string // address of the backend
	one     cores  // where gateways run
	others  cores  // where everything else runs
	sides   [2]*side
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	met, err := run(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(2)
	case !met:
		stop()
		os.Exit(1)
	}
}

// run is the program. It returns false when something that must hold does not.
func run(ctx context.Context) (met bool, err error) {
	quick := flag.Bool("quick", false, "fewer and shorter samples, a good minute, judged with some leeway for noise")
	asJSON := flag.Bool("json", false, "print JSON instead of a table")
	write := flag.Bool("write", false, "put the table into README.md, too")
	only := flag.String("only", "", "measure only this: json, latency, streams, idle, large or many")
	profiles := flag.String("profile", "", "take one pair of each, with CPU profiles of both sides into this directory; the figures suffer")
	role := flag.String("role", "", "what this process is; for the program's own use")
	flag.Parse()

	// One more than there are cores, for the metronome, which sleeps in the
	// kernel and holds on to what it runs on for a while.
	switch *role {
	case roleBackend:
		runtime.GOMAXPROCS(runtime.NumCPU() + 1)
		return true, serveBackend()
	case roleLoad:
		runtime.GOMAXPROCS(runtime.NumCPU() + 1)
		return true, serveLoad(os.Stdin, os.Stdout)
	}

	b := &bench{pairs: 5, rounds: 10, warm: time.Second, slice: 500 * time.Millisecond, profiles: *profiles}
	switch {
	case *profiles != "":
		b.pairs, b.rounds = 1, 40
	case *quick:
		b.pairs, b.rounds, b.warm, b.slice = 3, 4, 300*time.Millisecond, 250*time.Millisecond
	}
	r, err := b.report(ctx, *only, *quick)
	if err != nil {
		return false, err
	}
	if *asJSON {
		err = r.writeJSON(os.Stdout)
	} else {
		err = r.writeTable(os.Stdout)
	}
	if err == nil && *write {
		err = r.writeInto("README.md")
	}
	return r.met(), err
}

// report measures everything.
func (b *bench) report(ctx context.Context, only string, quick bool) (*report, error) {
	if err := b.divideCores(); err != nil {
		return nil, err
	}
	if only != "" && !slices.ContainsFunc(measures, func(m measure) bool { return m.name == only }) {
		return nil, fmt.Errorf("there is no measure %q", only)
	}
	var err error
	if b.profiles != "" {
		if err = os.MkdirAll(b.profiles, 0o700); err != nil {
			return nil, err
		}
	}
	if b.dir, err = os.MkdirTemp("", "modelgate-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	r, err := newReport(quick)
	if err != nil {
		return nil, err
	}
	if err := b.measureAll(ctx, only, r); err != nil {
		return nil, err
	}
	return r, r.finish()
}

// divideCores gives gateways the last core, and everything else the others.
func (b *bench) divideCores() error {
	all, err := allowedCores()
	if err != nil {
		return err
	}
	if len(all) < 2 {
		return errors.New("this benchmark needs two cores: one for the gateway, one for backend and load")
	}
	last := len(all) - 1
	b.one, b.others = all[last:], all[:last]
	return nil
}

// build makes the one Caddy that both sides run.
func (b *bench) build(ctx context.Context) (err error) {
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	b.caddy = filepath.Join(b.dir, "caddy")
	cmd := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", b.caddy, "./cmd/caddy") //nolint:gosec // our own
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building cmd/caddy, from the directory bench: %w", err)
	}
	return nil
}

// role is a command that starts this program again.
func (b *bench) role(ctx context.Context, role string) *exec.Cmd {
	return exec.CommandContext(ctx, b.self, "-role", role) //nolint:gosec // this very program
}

// startBackend runs the backend until stop is called.
func (b *bench) startBackend(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := b.role(ctx, roleBackend)
	stop = func() {
		cancel()
		_ = cmd.Wait() // it ends by being killed
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := startPinned(cmd, b.others); err != nil {
		cancel()
		return nil, err
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return nil, fmt.Errorf("the backend did not come up: %w", err)
	}
	b.backend = strings.TrimSpace(address)
	return stop, nil
}

// prepare makes the two sides.
func (b *bench) prepare(ctx context.Context) error {
	b.sides = [2]*side{{name: "bare", caddyfile: bare}, {name: "gate", caddyfile: gate}}
	for _, s := range b.sides {
		s.dir = filepath.Join(b.dir, s.name)
		if err := os.Mkdir(s.dir, 0o700); err != nil {
			return err
		}
	}
	if err := b.makeKey(ctx, b.sides[1]); err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	b.sides[0].key = b.sides[1].key // the same request on both sides
	return nil
}

// measureAll goes through the table of measures.
func (b *bench) measureAll(ctx context.Context, only string, r *report) error {
	stop, err := b.startBackend(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for _, m := range measures {
		if only != "" && only != m.name {
			continue
		}
		pairs := make([]pair, b.pairs)
		for i := range pairs {
			progress("%s, pair %d of %d", m.name, i+1, b.pairs)
			if pairs[i], err = b.pair(ctx, m); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		r.add(m, pairs)
	}
	progress("")
	return nil
}

// pair puts fresh processes of both sides to the job of a measure.
func (b *bench) pair(ctx context.Context, m measure) (p pair, err error) {
	o := order{Job: m.job, Key: b.sides[1].key, Warm: b.warm, Slice: b.slice, Rounds: b.rounds}
	var (
		starts   [2]time.Duration
		profiles sync.WaitGroup
	)
	for n, s := range b.sides {
		g, err := b.start(ctx, s)
		if err != nil {
			return p, err
		}
		defer g.stop()
		o.Targets[n] = target{g.address, g.cmd.Process.Pid}
		starts[n] = g.start
		if b.profiles != "" && m.job.Kind != idle {
			file := filepath.Join(b.profiles, m.name+"-"+s.name+".pprof")
			profiles.Go(func() {
				if err := g.profile(ctx, o.length(), file); err != nil {
					fmt.Fprintln(os.Stderr, "bench: profile:", err)
				}
			})
		}
	}
	p, err = b.hire(ctx, o)
	profiles.Wait()
	for n := range p {
		p[n].Start = starts[n]
	}
	return p, err
}

// hire runs a load generator in a process of its own.
func (b *bench) hire(ctx context.Context, o order) (p pair, err error) {
	var out bytes.Buffer
	cmd := b.role(ctx, roleLoad)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(marshal(o)), &out, os.Stderr
	if err := startPinned(cmd, b.others); err != nil {
		return p, err
	}
	if err := cmd.Wait(); err != nil {
		return p, fmt.Errorf("the load generator: %w", err)
	}
	return p, json.Unmarshal(out.Bytes(), &p)
}

// progress shows how far the run is, on a terminal.
func progress(format string, args ...any) {
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		_, _ = io.WriteString(os.Stderr, "\r\x1b[K"+fmt.Sprintf(format, args...))
	}
}
