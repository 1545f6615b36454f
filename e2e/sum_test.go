package e2e

import (
	"slices"
	"testing"
	"time"
)

// TestLedgerLogAndBackendAgreeToTheNanoUnit makes calls of all routes that are charged.
func TestLedgerLogAndBackendAgreeToTheNanoUnit(t *testing.T) {
	t.Parallel()
	sumOfCalls(t, func(callGenerator, *scriptedCall) {}, "")
}

// TestLedgerLogAndBackendAgreeWithFallbacks has calls whose models fail, and which others answer. The
// price of a failed model is that of the other one.
func TestLedgerLogAndBackendAgreeWithFallbacks(t *testing.T) {
	t.Parallel()
	sumOfCalls(t, func(random callGenerator, k *scriptedCall) {
		if !k.byUnits() && random.IntN(4) > 0 {
			random.behindAnother(k)
		}
	}, `
		fallback first-m-1 m-1 on dial broken 429 5xx
		fallback first-m-2 m-2 on dial broken 429 5xx
`)
}

// sumOfCalls makes random calls, of which each may be changed, and compares what the backend did with
// the ledger and the log. words are of the blocks of calls.
func sumOfCalls(t *testing.T, change func(callGenerator, *scriptedCall), words string) {
	t.Helper()
	scriptWriter := new(scriptSet)
	b := newBackend(t, scriptWriter.serve)
	s := priced(b, prices["m-2"].lines("first-m-1")+prices["m-1"].lines("first-m-2")+unitLines())
	s.Messages, s.Completions = words+s.Messages, words+s.Completions
	g := running(t, s, b)
	ada := g.newGatewayUser("buyer")
	ada.credit("1000.00")

	random := newCallGenerator(t)
	calls := make([]*scriptedCall, *sumCalls)
	for n := range calls {
		calls[n] = random.surfaceCall(n)
		change(random, calls[n])
		scriptWriter.add(calls[n])
	}
	began := time.Now()
	one, two := newTransport(http1), newTransport(http2)
	one.MaxIdleConnsPerHost = 64
	t.Cleanup(one.CloseIdleConnections)
	t.Cleanup(two.CloseIdleConnections)
	inParallel(64, len(calls), func(n int) {
		transport := one
		if n%2 == 0 {
			transport = two
		}
		if err := g.runCall(t.Context(), transport, ada.key, calls[n]); err != nil {
			t.Errorf("call %d, %s: %v", n, calls[n].path, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	g.awaitCalls("buyer", len(calls))
	w := g.walletAtRest("buyer")
	t.Logf("%d calls in %v", len(calls), time.Since(began).Round(time.Millisecond))

	// The backend's own figures are compared with the log and the console for
	// each call.
	var due used
	kinds := map[string]int{}    // of ends
	routes := map[string]int{}   // that broke off
	byModel := map[string]used{} // a call that the backend refused has none
	logged, listed := g.process.callLines(len(calls)), map[string]used{}
	for _, c := range ada.calls() {
		listed[c.Request] = c
	}
	if len(listed) != len(calls) || len(logged) != len(calls) {
		t.Errorf("%d calls: %d are in the ledger, %d in the log", len(calls), len(listed), len(logged))
	}
	for _, k := range calls {
		want, ended, usage := k.charge()
		cost, uncollected := k.cost(prices[k.model]), k.uncollected(prices[k.model])
		kinds[ended+" "+usage]++
		if k.end != whole && k.end != rejected {
			routes[k.path]++
		}
		line, record := logged[k.id], listed[k.id]
		if !k.mayHaveEnded(ended, line.Ended) || line.Usage != usage || line.Cost != cost || line.Uncollected != uncollected {
			t.Errorf("call %d on %s, %s after %d of %d, is logged as %+v, want %s %s %v", k.number, k.path, k.end, k.stop, len(k.events), line, ended, usage, cost)
		}
		if !k.mayHaveEnded(ended, record.Ended) || record.Usage != usage || record.Cost != cost || record.Tokens != want {
			t.Errorf("call %d on %s, %s after %d of %d, is recorded as %+v, want %s %s %v %+v", k.number, k.path, k.end, k.stop, len(k.events), record, ended, usage, cost, want)
		}
		sum := used{Calls: 1, Tokens: want, Cost: cost, Uncollected: uncollected}
		due = total([]used{due, sum})
		model := k.model
		if ended == "refused" {
			model = ""
		}
		byModel[model] = total([]used{byModel[model], sum})
	}

	for _, kind := range []string{
		"complete reported", "complete estimated", "client_gone estimated", "client_gone reported",
		"upstream_error none", "upstream_error estimated", "upstream_error reported", "refused none",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no generated call has the end %q: %v", kind, kinds)
		}
	}
	for _, path := range chargedRoutes {
		if routes[path] == 0 {
			t.Errorf("no generated call of %s breaks off: %v", path, routes)
		}
	}
	t.Logf("ended as %v; broken off: %v", kinds, routes)

	// Their sums are compared with the wallet and the reports.
	if w.Balance != 1000*unit-due.Cost || w.Held != 0 || w.Owed != 0 {
		t.Errorf("the wallet is %+v, want a balance of %v", w, 1000*unit-due.Cost)
	}
	if got := -sumOf(g.ledger("buyer"), "calls"); got != due.Cost {
		t.Errorf("the wallet's lines sum to %v, want %v", got, due.Cost)
	}
	for _, groups := range [][]string{nil, {"day"}, {"user"}, {"key"}, {"model"}, {"day", "user", "key", "model"}} {
		rows := g.report("buyer", groups...)
		if got := total(rows); got != due {
			t.Errorf("the usage by %q sums to %+v, want %+v", groups, got, due)
		}
		for _, row := range rows {
			if want := byModel[row.Model]; slices.Equal(groups, []string{"model"}) && total([]used{row}) != want {
				t.Errorf("the usage of %s is %+v, want %+v", row.Model, row, want)
			}
		}
	}
	due.Uncollected = 0 // not shown to the user
	var own struct{ Total used }
	if ada.mustConsole("/api/data/self?group=model", &own); own.Total != due {
		t.Errorf("the usage for the user is %+v, want %+v", own.Total, due)
	}
	g.verify()
	g.verifyByCommand("--address", g.Admin)
}
