package e2e

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
)

func TestABackupDuringPaymentsIsConsistent(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	g := newGateway(t, priced(b, salesOptions(planPrice)), b)
	g.start()
	workloads := []*workload{g.newWorkload("one", scripts, newCallGenerator(t)), g.newWorkload("two", scripts, newCallGenerator(t))}
	first := workloads[0].payments[0]
	ctx, closing := context.WithCancel(t.Context())
	done := make(chan struct{}, len(workloads))
	more := make(chan struct{}, 1<<16)
	for _, m := range workloads {
		m.acknowledged = func() { more <- struct{}{} }
		go func() {
			m.run(ctx)
			done <- struct{}{}
		}()
	}

	type backup struct {
		file          string
		before, after []int // number of entries of the wallets
	}
	count := func() (lines []int) {
		for _, m := range workloads {
			lines = append(lines, len(g.ledger(m.c.name)))
		}
		return lines
	}
	var taken []backup
	for n := range 3 {
		for range 200 {
			receive(t, more, "more movements")
		}
		k := backup{file: filepath.Join(g.Dir, "backup-"+strconv.Itoa(n)), before: count()}
		if p := g.command("modelgate", "backup", k.file, "--address", g.Admin); p.code(waitLimit) != 0 {
			t.Fatalf("the backup failed:\n%s", p.log.tail(10))
		}
		k.after = count()
		taken = append(taken, k)
		g.verifyByCommand("--backup", k.file)
	}
	closing()
	for range workloads {
		receive(t, done, "the end of the workload")
	}
	for _, m := range workloads {
		m.finish()
	}
	var histories [][]entry
	for _, m := range workloads {
		g.walletAtRest(m.c.name)
		histories = append(histories, g.ledger(m.c.name))
	}

	transport := newTransport(http1)
	defer transport.CloseIdleConnections()
	for n, k := range taken {
		copied := newGateway(t, g.Site, b)
		copied.operatorKey = g.operatorKey
		if p := copied.command("modelgate", "restore", k.file, copied.Store); p.code(waitLimit) != 0 {
			t.Fatalf("the backup was not restored:\n%s", p.log.tail(10))
		}
		copied.start()
		copied.verify()
		copied.verifyByCommand("--address", copied.Admin)
		for i, m := range workloads {
			lines := copied.ledger(m.c.name)
			if len(lines) < k.before[i] || len(lines) > k.after[i] {
				t.Errorf("backup %d: the wallet of %s has %d lines, want %d to %d", n, m.c.name, len(lines), k.before[i], k.after[i])
			}
			for j, line := range lines {
				if line != histories[i][j] {
					t.Errorf("backup %d: line %d of %s is %+v, want %+v", n, j, m.c.name, line, histories[i][j])
				}
			}
			if w := copied.wallet(m.c.name); w.Balance != lines[len(lines)-1].Balance || w.Reserved != 0 || w.Held != 0 {
				t.Errorf("backup %d: the wallet of %s is %+v after the line %+v", n, m.c.name, w, lines[len(lines)-1])
			}
		}

		// The restored gateway works: an old operation is not performed again,
		// and a new one is.
		c := &gatewayUser{g: copied, name: workloads[0].c.name, key: workloads[0].c.key, token: workloads[0].c.token, http: workloads[0].c.http}
		before := copied.wallet(c.name).Balance
		again := c.operatorCredit("opening", 1000*unit)
		if err := again.attempt(); err != nil || again.receipt != first.receipt {
			t.Errorf("backup %d: the first credit returned %+v, its repetition %+v (%v)", n, first.receipt, again.receipt, err)
		}
		if err := c.purchase("after", func(int64) {}).attempt(); err != nil {
			t.Errorf("backup %d: %v", n, err)
		}
		if now := copied.wallet(c.name).Balance; now != before-planPrice {
			t.Errorf("backup %d: a purchase of %v changed the balance from %v to %v", n, planPrice, before, now)
		}
		k := workloads[0].wholeCall()
		scripts.add(k)
		if err := copied.runCall(t.Context(), transport, c.key, k); err != nil {
			t.Errorf("backup %d: a call: %v", n, err)
		}
		copied.walletAtRest(c.name)
		copied.verify()
		copied.process.kill()
	}
}
