// Command bench measures the gateway side by side with Caddy's bare
// reverse_proxy, and its store, ledger, purchases and tasks by themselves, in
// one run on one machine. It prints a table with the bound, the goal and the
// figure of each row. README.md explains the rows.
//
//	go run .
//	go run . -quick
//	go run . -write
//
// The table of measures.go declares each measure: a [trial] returns a [pair] of
// samples, one of the reference and one of the gateway. The program starts
// itself again in several roles, so that the load and the backend are processes
// of their own. It may import all packages of the gateway.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Roles in which this program starts itself again.
const (
	roleBackend      = "backend"       // answers calls like a model, and tasks like a generation service
	roleLoad         = "load"          // sends load to gateways
	rolePurchases    = "purchases"     // buys plans
	roleSeedLedger   = "seed_ledger"   // fills a ledger with entries
	roleSeedSessions = "seed_sessions" // fills a store with users and sessions

	roleTasks     = "tasks"      // submits tasks
	roleSeedTasks = "seed_tasks" // fills a store with tasks

	roleSeedHistory = "seed_history" // fills a store with the history of one user
)

// ledgerEntries is the number of entries in the ledger that is verified. A
// quick run uses a tenth of it.
const ledgerEntries = 1_000_000

// lastingLoad is the duration of the load that shows the peak of memory. A
// quick run uses lastingQuick.
const (
	lastingLoad  = 10 * time.Minute
	lastingQuick = 30 * time.Second
)

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

// run is the program. It returns false if a bound is not met.
func run(ctx context.Context) (met bool, err error) {
	quick := flag.Bool("quick", false, "fewer and shorter samples, about six minutes, with a tolerance for noise")
	asJSON := flag.Bool("json", false, "print JSON instead of a table")
	write := flag.Bool("write", false, "put the table into README.md, too")
	free := flag.Bool("free", false, "measure calls that have no price, instead of the table")
	only := flag.String("only", "", "measure only this: "+strings.Join(names(), ", "))
	lasts := flag.Duration("lasts", 0, "how long a lasting load lasts (default 10m, or 30s in a quick run)")
	profiles := flag.String("profile", "", "measure one pair of each, with CPU profiles into this directory; the figures are less exact")
	role := flag.String("role", "", "what this process is; for the program's own use")
	flag.Parse()
	if *role != "" {
		return true, serve(*role)
	}
	if *free && *write {
		return false, errors.New("-write and -free exclude each other: the table has calls with prices")
	}

	b := &bench{pairs: 5, turns: turns{Warm: time.Second, Slice: 500 * time.Millisecond, Rounds: 10}, entries: ledgerEntries, lasts: lastingLoad, profiles: *profiles, free: *free}
	switch {
	case *profiles != "":
		b.pairs, b.turns.Rounds = 1, 40
	case *quick:
		b.pairs, b.turns = 3, turns{Warm: 300 * time.Millisecond, Slice: 250 * time.Millisecond, Rounds: 4}
		b.entries /= 10
		b.lasts = lastingQuick
	}
	if *lasts > 0 {
		b.lasts = *lasts
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

// serve runs this program in one of its roles.
func serve(role string) error {
	switch role {
	case roleBackend, roleLoad:
		// One more than the number of cores, because the metronome sleeps in
		// the kernel and blocks its processor for a while.
		runtime.GOMAXPROCS(runtime.NumCPU() + 1)
	}
	roles := map[string]func(io.Reader, io.Writer) error{
		roleBackend: serveBackend, roleLoad: serveLoad,
		rolePurchases: inStore(besideOrder.buyPlans), roleTasks: inStore(besideOrder.submitTasks),
		roleSeedLedger: filling(ledgerSeed.fill), roleSeedSessions: filling(sessionSeed.fill), roleSeedTasks: filling(taskSeed.fill),
		roleSeedHistory: filling(historySeed.fill),
	}
	if roles[role] == nil {
		return fmt.Errorf("-role: %q is not supported", role)
	}
	return roles[role](os.Stdin, os.Stdout)
}

// report measures everything, or only the named measure.
func (b *bench) report(ctx context.Context, only string, quick bool) (*report, error) {
	if only != "" && !slices.Contains(names(), only) {
		return nil, fmt.Errorf("-only: %q is not supported; allowed: %s", only, strings.Join(names(), ", "))
	}
	if err := b.divideCores(); err != nil {
		return nil, err
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

// divideCores reserves the last core for gateways; everything else runs on the
// others.
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
