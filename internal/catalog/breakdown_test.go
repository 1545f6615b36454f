package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// checkTotal fails the test if the total of a breakdown differs from the charge. A charge that was cut
// may be lower.
func checkTotal(t interface{ Fatalf(string, ...any) }, c Charge) {
	b, err := ReadBreakdown(c.Breakdown(), c.Tokens)
	switch {
	case err != nil:
		t.Fatalf("%q: %v", c.Breakdown(), err)
	case b == nil && c.Amount != 0:
		t.Fatalf("a charge of %v has no breakdown", c.Amount)
	case b == nil:
		return
	case b.Total != c.Amount && (!c.Cut || b.Total < c.Amount):
		t.Fatalf("the total of %+v is %v, the charge %v", b, b.Total, c.Amount)
	}
}

func TestABreakdownExplainsACharge(t *testing.T) {
	t.Parallel()
	amount := func(text string) *money.Amount {
		a, err := money.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return &a
	}
	p := Price{
		Model: "m", TokenPrices: TokenPrices{Input: amount("3"), Output: amount("15.000000001")}, Request: *amount("0.01"), Context: 1000, MaxOutput: 1000,
		Above: []Above{{200, TokenPrices{Input: amount("6")}}},
		Tier:  []Tier{{Names: []string{"flex"}, Factor: *amount("0.5")}},
		Geo:   []Geo{{"us", *amount("1.1")}},
		Call:  []ToolPrice{{Tool: "web_search", Price: *amount("0.02")}},
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		report usage.Report
		want   string
	}{
		"no rules": {
			usage.Report{Tokens: usage.Tokens{Input: 100, Output: 10}},
			`{"parts":[{"tokens":[{"kind":"input","tokens":100,"price":"3.00","cost":"0.0003"},{"kind":"output","tokens":10,"price":"15.000000001","cost":"0.00015000000001"}]}],` +
				`"sum":"0.00045000000001","rounded":"0.000450001","request":"0.01","total":"0.010450001"}`,
		},
		"all rules": {
			usage.Report{Tokens: usage.Tokens{Input: 300}, Tier: "flex", Geo: "us", Tools: []usage.ToolUse{{Name: "web_search", Uses: 2}}},
			`{"parts":[{"above":200,"tier":"flex","tier_factor":"0.50","geo":"us","geo_factor":"1.10","tokens":[{"kind":"input","tokens":300,"price":"6.00","cost":"0.00099"}]}],` +
				`"sum":"0.00099","rounded":"0.00099","request":"0.01","tools":[{"tool":"web_search","uses":2,"price":"0.02"}],"total":"0.05099"}`,
		},
		"an unlisted tier": {
			usage.Report{Tokens: usage.Tokens{Input: 100}, Tier: "scale"},
			`{"parts":[{"tokens":[{"kind":"input","tokens":100,"price":"3.00","cost":"0.0003"}]}],"sum":"0.0003","rounded":"0.0003","request":"0.01","total":"0.0103","unlisted":"scale"}`,
		},
		"a compaction": {
			usage.Report{Tokens: usage.Tokens{Input: 100}, Passes: []usage.Pass{{Kind: usage.CompactionPass, Model: "c", Tokens: usage.Tokens{Input: 300}}}},
			`{"parts":[{"tokens":[{"kind":"input","tokens":100,"price":"3.00","cost":"0.0003"}]},` +
				`{"pass":"compaction","model":"c","above":200,"tokens":[{"kind":"input","tokens":300,"price":"6.00","cost":"0.0018"}]}],` +
				`"sum":"0.0021","rounded":"0.0021","request":"0.01","total":"0.0121"}`,
		},
	} {
		charge := p.Charge(bounded(t, &p, CallSpec{Compaction: true}), &c.report)
		b, err := ReadBreakdown(charge.Breakdown(), charge.Tokens)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(b); string(got) != c.want {
			t.Errorf("%s: the breakdown is\n%s, want\n%s", name, got, c.want)
		}
		checkTotal(t, charge)
	}
	if free := (Charge{Tokens: usage.Tokens{Input: 5}}); free.Breakdown() != "" {
		t.Errorf("the breakdown of a free call is %q", free.Breakdown())
	}
	plain := claude()
	charge := plain.Charge(bounded(t, &plain, CallSpec{}), &usage.Report{Tokens: usage.Tokens{Input: 1200, Output: 300}})
	if n := len(charge.Breakdown()); n != 7 {
		t.Errorf("the breakdown of a plain call has %d bytes, want 7", n)
	}
}

// FuzzBreakdown decodes arbitrary bytes as a breakdown.
func FuzzBreakdown(f *testing.F) {
	f.Add("\x01\x00\xf1\x2e\xa9\xea\x01")
	f.Add("\x02\x06\x03\x01c\x01\x00\x00\x00" + strings.Repeat("\xff", 10))
	f.Fuzz(func(_ *testing.T, record string) {
		_, _ = ReadBreakdown(record, usage.Tokens{Input: 1, Output: 2})
	})
}
