package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bench is one run of the benchmark.
type bench struct {
	pairs    int // of each measure
	turns    turns
	entries  int64         // in the verified ledger
	lasts    time.Duration // duration of the load that shows the peak of memory
	profiles string        // directory for CPU profiles; empty for none
	free     bool          // calls have no price

	dir     string // temporary, for everything
	self    string // this program
	caddy   string // the build under test
	backend string // address of the backend
	one     cores  // for what is measured
	others  cores  // for everything else
	sites   map[string]*site
}

// turns is how the two sides of a pair alternate, so that other activity of the
// machine affects both equally.
type turns struct {
	Warm   time.Duration // warm-up of each side, which does not count
	Slice  time.Duration // duration of one turn
	Rounds int           // number of turns of each side
}

// length returns the duration of all turns of both sides.
func (t turns) length() time.Duration {
	return 2 * (t.Warm + time.Duration(t.Rounds)*t.Slice)
}

// build builds the one Caddy binary that all gateways run.
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

// measureAll runs the measures of the table and adds their rows to the report.
func (b *bench) measureAll(ctx context.Context, only string, r *report) error {
	stop, err := b.startBackend(ctx)
	if err != nil {
		return err
	}
	defer stop()
	b.sites = make(map[string]*site)
	for _, m := range measures(b.entries, b.lasts) {
		if only != "" && only != m.name {
			continue
		}
		if b.free {
			var ok bool
			if m, ok = m.withoutMoney(); !ok {
				continue
			}
		}
		pairs := make([]pair, b.pairs)
		if _, long := m.trial.(lasting); long { // one pair is enough
			pairs = pairs[:1]
		}
		for i := range pairs {
			progress("%s, pair %d of %d", m.name, i+1, b.pairs)
			if pairs[i], err = m.trial.pair(ctx, b, m.name); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		r.add(m, pairs)
	}
	progress("")
	return nil
}

// role returns a command that starts this program again in a role.
func (b *bench) role(ctx context.Context, role string) *exec.Cmd {
	return exec.CommandContext(ctx, b.self, "-role", role) //nolint:gosec // this very program
}

// startBackend runs the backend until stop is called.
func (b *bench) startBackend(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := b.role(ctx, roleBackend)
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed
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

// runRole starts this program in a role, sends it an order as JSON and reads
// its answer. The error includes what the process wrote to standard error.
func (b *bench) runRole(ctx context.Context, role string, on cores, order, answer any) error {
	var out, said bytes.Buffer
	cmd := b.role(ctx, role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(marshal(order)), &out, &said
	if err := startPinned(cmd, on); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the %s: %w\n%s", role, err, said.Bytes())
	}
	return json.Unmarshal(out.Bytes(), answer)
}

// serveOrder is the other end of runRole: it reads an order, carries it out and
// writes the answer.
func serveOrder[Order, Answer any](in io.Reader, out io.Writer, carryOut func(context.Context, Order) (Answer, error)) error {
	var order Order
	if err := json.NewDecoder(in).Decode(&order); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	answer, err := carryOut(context.Background(), order)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

// progress shows on a terminal how far the run is.
func progress(format string, args ...any) {
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		_, _ = io.WriteString(os.Stderr, "\r\x1b[K"+fmt.Sprintf(format, args...))
	}
}
