package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage/postgres/postgrestest"
)

// TestAStoreMovesBetweenEngines moves a store from Badger to PostgreSQL and back, as the guide
// says, and looks for the same money there.
func TestAStoreMovesBetweenEngines(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	transport := newTransport(http1)
	defer transport.CloseIdleConnections()
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	in := func(storage string) *gateway {
		s := priced(b, salesOptions(planPrice))
		g := newGateway(t, s, b)
		if storage == "" {
			storage = fmt.Sprintf("storage badger %q", g.Store)
		}
		g.Site.Storage = fmt.Sprintf("%s\nsecret %x", storage, secret)
		return g
	}
	restore := func(want int, args ...string) {
		t.Helper()
		args = append([]string{"modelgate", "restore"}, args...)
		if p := in("").command(args...); p.code(waitLimit) != want {
			t.Fatalf("%q: want exit code %d:\n%s", args, want, p.log.tail(10))
		}
	}

	first := in("")
	first.start()
	m := first.newWorkload("ada", scripts, newCallGenerator(t))
	ctx, enough := context.WithCancel(t.Context())
	var acknowledged atomic.Int64
	m.acknowledged = func() {
		if acknowledged.Add(1) == 150 {
			enough()
		}
	}
	m.run(ctx)
	m.finish()
	balance, lines := first.walletAtRest("ada").Balance, first.ledger("ada")

	server := postgrestest.Start(t)
	second, third := in(fmt.Sprintf("storage postgres %q {\n patience 1s\n}", server.Database())), in("")
	from := first
	for n, next := range []*gateway{second, third} {
		file := filepath.Join(t.TempDir(), "move")
		if p := from.command("modelgate", "backup", file, "--address", from.Admin); p.code(waitLimit) != 0 {
			t.Fatalf("the backup failed:\n%s", p.log.tail(10))
		}
		from.verifyByCommand("--backup", file)
		next.writeConfig()
		if next == second {
			restore(2, file)
			restore(2, file, "--config", first.file())
			restore(0, file, "--config", next.file())
			restore(4, file, "--config", next.file()) // not empty
		} else {
			restore(4, file, "--config", second.file()) // in use
			restore(0, file, next.Store)
		}
		from.process.terminate()
		from.process.code(waitLimit)
		next.start()
		next.awaitReady(http.StatusOK, "")
		next.verify()
		if got := next.walletAtRest("ada"); got.Balance != balance || got.Held != 0 {
			t.Errorf("move %d: the wallet is %+v, want %v", n, got, balance)
		}
		if got := next.ledger("ada"); !slices.Equal(got, lines) {
			t.Errorf("move %d: the ledger has %d lines, want %d equal ones", n, len(got), len(lines))
		}
		k := m.wholeCall()
		scripts.add(k)
		if err := next.runCall(t.Context(), transport, m.c.key, k); err != nil {
			t.Errorf("move %d: a call: %v", n, err)
		}
		next.awaitCalls("ada", total(next.report("ada")).Calls)
		balance, lines = next.walletAtRest("ada").Balance, next.ledger("ada")
		from = next
	}
	third.verify()
}
