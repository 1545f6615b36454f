package e2e

import (
	"context"
	"strings"
	"testing"
	"time"
)

// site returns a site with the prices of a tariff.
func (t tariffs) site(b *backend, tariff int) site {
	s := forwarding(b)
	s.Log = "INFO"
	s.Money = tolerant + salesOptions(t.plan(tariff))
	for _, model := range []string{"m-1", "m-2"} {
		s.Money += t.of(model, tariff).lines(model)
	}
	// The grace period is shorter than the calls. A reload must end none of
	// them.
	s.Global = "grace_period 100ms"
	s.Limits = "ping off" // the stream must equal the backend's to the byte although calls are held
	return s
}

func TestPaymentsContinueThroughReloadsAtTheirPrices(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	g := running(t, tariffs{}.site(b, 0), b)
	m := g.newWorkload("trader", scripts, newCallGenerator(t))
	m.reopens = true
	ctx, closing := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.run(ctx)
	}()

	// In addition, one call is held from before each price change until after
	// the last.
	release := make(chan struct{})
	var held []*scriptedCall
	ended := make(chan error, reloads)
	for tariff := range reloads {
		k := m.wholeCall()
		k.span = span{m.tariffs.loaded(), tariff}
		k.waiting, k.release = make(chan struct{}), release
		scripts.add(k)
		held = append(held, k)
		transport := newTransport(http2)
		t.Cleanup(transport.CloseIdleConnections)
		go func() { ended <- g.runCall(context.WithoutCancel(ctx), transport, m.c.key, k) }()
		receive(t, k.waiting, "the held call at the pause of the backend")

		g.Site = m.tariffs.site(b, tariff+1)
		m.tariffs.changes.Add(1)
		if err := g.reload(); err != nil {
			t.Fatalf("reload %d: %v", tariff, err)
		}
		m.tariffs.changes.Add(1)
		g.verify()
	}
	close(release)
	for range held {
		if err := receive(t, ended, "the end of a call that was held"); err != nil {
			t.Error(err)
		}
	}
	closing()
	receive(t, done, "the end of the workload")
	m.finish()

	now := time.Now()
	for _, k := range held {
		k.ended = now
	}
	m.calls = append(m.calls, held...)
	answered := 0
	for _, k := range m.calls {
		if k.id != "" && k.endsWithoutClient() {
			receive(t, k.gone, "the end of a call whose client has disconnected")
		}
		if _, ended := k.over(); ended {
			answered++
		}
	}
	g.awaitCalls(m.c.name, answered)
	if missing, _ := m.check(now); missing > 0 {
		t.Errorf("%d calls are missing in the ledger", missing)
	}
	t.Logf("%d calls, %d payments", len(m.calls), len(m.payments))
	if n := strings.Count(g.process.log.String(), "servers shutting down"); n != reloads {
		t.Errorf("the servers were replaced %d times, want %d", n, reloads)
	}
	g.verify()
}
