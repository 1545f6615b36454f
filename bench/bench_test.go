package main

import (
	"context"
	"io"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBodiesHaveTheSizesOfTheTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		size int
		want float64
	}{
		{"small call", len(smallBody(false)), 1 << 10},
		{"answer", len(answerJSON), 1 << 10},
		{"event", len(eventDelta), 150},
		{"large call in one message", len(largeBody(1)), 200 << 10},
		{"large call in 400 messages", len(largeBody(400)), 200 << 10},
	} {
		if off := math.Abs(float64(c.size)/c.want - 1); off > 0.1 {
			t.Errorf("%s: %d bytes, want about %.0f", c.name, c.size, c.want)
		}
	}
}

func TestAValueIsComparedWithItsBounds(t *testing.T) {
	t.Parallel()
	atMost := row{compare: ratio, must: 1.5, aim: 1.2}
	atLeast := row{compare: ratio, must: 0.95, aim: 1.03, atLeast: true}
	for _, c := range []struct {
		row   row
		value float64
		quick bool
		want  verdict
	}{
		{atMost, 1.2, false, reached},
		{atMost, 1.3, false, held},
		{atMost, 1.51, false, missed},
		{atMost, 1.51, true, nearly},
		{atMost, 1.8, true, missed},
		{atLeast, 1.03, false, reached},
		{atLeast, 1, false, held},
		{atLeast, 0.94, false, missed},
		{atLeast, 0.94, true, nearly},
		{atLeast, 0.7, true, missed},
	} {
		if got := c.row.judge(c.value, c.quick); got != c.want {
			t.Errorf("%v (at least: %t, quick: %t): %q, want %q", c.value, c.row.atLeast, c.quick, got, c.want)
		}
	}
}

func TestTheResultIsTheMedianOfThePairs(t *testing.T) {
	t.Parallel()
	r := new(report)
	r.add(measure{rows: []row{{label: "p50", figure: medianLatency, unit: microseconds, compare: added, must: ms(1), aim: ms(0.1)}}}, []pair{
		{{P50: 100 * time.Microsecond}, {P50: 140 * time.Microsecond}},
		{{P50: 300 * time.Microsecond}, {P50: 320 * time.Microsecond}}, // both runs are slow
		{{P50: 100 * time.Microsecond}, {P50: 900 * time.Microsecond}},
	})
	if got := r.Rows[0]; got.Measured != 40 || got.Verdict != reached || got.Must != "≤ 1000 µs more" {
		t.Errorf("%+v", got)
	}
}

func TestConnectionsUseTheKeysInTurn(t *testing.T) {
	t.Parallel()
	site := target{Address: "127.0.0.1:80", Keys: []string{"sk-one", "sk-two"}}
	for n, want := range []string{"sk-one", "sk-two", "sk-one"} {
		if sent := string(site.request(n, "", smallBody(false))); !strings.Contains(sent, "X-Api-Key: "+want+"\r\n") {
			t.Errorf("connection %d: want %s, got\n%s", n, want, sent)
		}
	}
}

func TestRolesExecuteOrders(t *testing.T) {
	t.Parallel()
	double := func(_ context.Context, n int) (int, error) { return 2 * n, nil }
	var answer strings.Builder
	if err := serveOrder(strings.NewReader("21"), &answer, double); err != nil || strings.TrimSpace(answer.String()) != "42" {
		t.Errorf("got %q, %v", answer.String(), err)
	}
	if err := serveOrder(strings.NewReader("many"), io.Discard, double); err == nil {
		t.Error("an order that cannot be decoded was executed")
	}
}

func TestMeasuresAndRowsHaveUniqueNames(t *testing.T) {
	t.Parallel()
	names, labels := make(map[string]bool), make(map[string]bool)
	for _, m := range measures(1000, time.Minute) {
		if names[m.name] || len(m.rows) == 0 {
			t.Errorf("measure %q is defined twice or has no row", m.name)
		}
		names[m.name] = true
		for _, row := range m.rows {
			if labels[row.label] {
				t.Errorf("row %q is defined twice", row.label)
			}
			labels[row.label] = true
			if row.atLeast != (row.aim > row.must) {
				t.Errorf("row %q: the aim %v is easier than the bound %v", row.label, row.aim, row.must)
			}
		}
	}
}

func TestTheTableOfTheFileIsReplaced(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(file, []byte("before\n"+tableBegins+"old\n"+tableEnds+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &report{Machine: "a machine"}
	if err := r.writeInto(file); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	if !strings.HasPrefix(text, "before\n"+tableBegins) || !strings.HasSuffix(text, tableEnds+"after\n") ||
		!strings.Contains(text, "a machine") || strings.Contains(text, "old") {
		t.Error(text)
	}
}

func TestConnectionsReadAnswersAndEvents(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newBackend())
	defer server.Close()
	address := server.Listener.Addr().String()

	calls, err := dial(context.Background(), address, request(address, "", "", smallBody(false)))
	if err != nil {
		t.Fatal(err)
	}
	defer calls.close()
	for range 3 {
		if err := calls.call(); err != nil {
			t.Fatal(err)
		}
	}

	events, err := dial(context.Background(), address, request(address, "", wantStream, smallBody(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer events.close()
	if err := events.open(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := events.event(); err != nil {
			t.Fatal(err)
		}
	}
}
