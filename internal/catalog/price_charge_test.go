package catalog

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// gpt returns a price with all options. An input token costs one nano-unit, an output token ten.
func gpt() Price {
	return Price{
		Model: "gpt-*",
		TokenPrices: TokenPrices{
			Input: amount("0.001"), Output: amount("0.01"), CacheRead: amount("0.0001"),
			AudioInput: amount("0.1"), AudioOutput: amount("0.2"), ImageOutput: amount("0.05"),
		},
		Context: 1000, MaxOutput: 100,
		Above: []Above{
			{Tokens: 200, TokenPrices: TokenPrices{Input: amount("0.002"), Output: amount("0.015")}},
			{Tokens: 500, TokenPrices: TokenPrices{Input: amount("0.003")}},
		},
		Tier: []Tier{
			{Names: []string{"flex"}, Factor: *amount("0.5")},
			{Names: []string{"priority", "fast"}, TokenPrices: TokenPrices{Input: amount("0.004"), Output: amount("0.04")}},
			{Names: []string{"ultrafast"}, TokenPrices: TokenPrices{Input: amount("0.006")}, Above: []Above{
				{Tokens: 200, TokenPrices: TokenPrices{Input: amount("0.012")}},
			}},
		},
		Geo:  []Geo{{Name: "us", Factor: *amount("1.1")}},
		Call: []ToolPrice{{Tool: "web_search", Price: 1000, Max: 2}, {Tool: "code_execution", Price: 100}},
	}
}

func bounded(t *testing.T, p *Price, a CallSpec) Bounds {
	t.Helper()
	b, refused := p.Bounds(a)
	if refused != nil {
		t.Fatal(refused)
	}
	return b
}

func TestPriceRulesApplyInOrder(t *testing.T) {
	t.Parallel()
	searches := []ServerTool{{Param: "tools[0].type", Name: "web_search", MaxUses: 3}}
	executes := []ServerTool{{Param: "tools[0].type", Name: "code_execution"}}
	for name, c := range map[string]struct {
		spec   CallSpec
		report usage.Report
		want   money.Amount // in nano-units
	}{
		"plain":                      {CallSpec{}, usage.Report{Tokens: usage.Tokens{Input: 100, Output: 10}}, 200},
		"audio":                      {CallSpec{Audio: true}, usage.Report{Tokens: usage.Tokens{Input: 1, AudioInput: 2, AudioOutput: 3}}, 1 + 200 + 600},
		"images":                     {CallSpec{ImageOut: true}, usage.Report{Tokens: usage.Tokens{ImageInput: 5, ImageOutput: 3}}, 5 + 150},
		"at the threshold":           {CallSpec{}, usage.Report{Tokens: usage.Tokens{Input: 200, Output: 10}}, 200 + 100},
		"above the threshold":        {CallSpec{}, usage.Report{Tokens: usage.Tokens{Input: 201, Output: 10}}, 402 + 150},
		"cached tokens count":        {CallSpec{}, usage.Report{Tokens: usage.Tokens{Input: 101, CacheRead: 100}}, 202 + 10},
		"above the second threshold": {CallSpec{}, usage.Report{Tokens: usage.Tokens{Input: 501, Output: 10}}, 1503 + 100},
		"a factor":                   {CallSpec{}, usage.Report{Tier: "flex", Tokens: usage.Tokens{Input: 100, Output: 10}}, 100},
		"rounded up once":            {CallSpec{}, usage.Report{Tier: "flex", Geo: "us", Tokens: usage.Tokens{Input: 3, CacheRead: 1}}, 2}, // 3.1 × 0.55 = 1.705
		"a block":                    {CallSpec{}, usage.Report{Tier: "priority", Tokens: usage.Tokens{Input: 100, Output: 10, CacheRead: 10}}, 400 + 400 + 1},
		"another name of a tier":     {CallSpec{}, usage.Report{Speed: "fast", Tokens: usage.Tokens{Input: 100, Output: 10}}, 800},
		"a tier after above":         {CallSpec{}, usage.Report{Tier: "flex", Tokens: usage.Tokens{Input: 300, Output: 10}}, (600 + 150) / 2},
		"a block replaces above":     {CallSpec{}, usage.Report{Tier: "priority", Tokens: usage.Tokens{Input: 300, Output: 10}}, 1200 + 400},
		"above in a tier":            {CallSpec{}, usage.Report{Tier: "ultrafast", Tokens: usage.Tokens{Input: 300, Output: 10}}, 3600 + 150},
		"a region after a tier":      {CallSpec{}, usage.Report{Tier: "flex", Geo: "us", Tokens: usage.Tokens{Input: 400, Output: 0}}, 440},
		"usual names":                {CallSpec{}, usage.Report{Tier: "standard", Speed: "standard", Geo: "not_available", Tokens: usage.Tokens{Input: 100}}, 100},
		"as requested":               {CallSpec{Tiers: []Option{{"service_tier", "flex"}}, Geo: Option{"inference_geo", "us"}}, usage.Report{Tokens: usage.Tokens{Input: 100}}, 55},
		"as reported":                {CallSpec{Tiers: []Option{{"service_tier", "priority"}}}, usage.Report{Tier: "default", Tokens: usage.Tokens{Input: 100}}, 100},
		"tools after factors": {
			CallSpec{Tools: searches},
			usage.Report{Tier: "flex", CountsTools: true, Tools: []usage.ToolUse{{Name: "web_search", Uses: 2}}, Tokens: usage.Tokens{Input: 100}}, 50 + 2000,
		},
		"an unused tool":               {CallSpec{Tools: searches}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 100}}, 100},
		"no report of tool uses":       {CallSpec{Tools: searches}, usage.Report{Tokens: usage.Tokens{Input: 100}}, 100 + 1000},
		"a tool that is not counted":   {CallSpec{Tools: executes}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 100}}, 100 + 100},
		"more than the limits":         {CallSpec{BodyBytes: 3, MaxTokens: 1, HasMaxTokens: true, Tiers: []Option{{"service_tier", "default"}}}, usage.Report{Tokens: usage.Tokens{Input: 5000, Output: 5}}, 3000 + 10},
		"a tool loop beyond context":   {CallSpec{Tools: searches}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 3900}}, 11700},
		"a compaction":                 {CallSpec{Compaction: true}, usage.Report{Tokens: usage.Tokens{Input: 100}, Passes: []usage.Pass{{Kind: usage.CompactionPass, Tokens: usage.Tokens{Input: 180, Output: 10}}}}, 100 + 280},
		"passes below the threshold":   {CallSpec{Tools: searches}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 300}, Passes: []usage.Pass{{Kind: usage.MessagePass, Tokens: usage.Tokens{Input: 120}}, {Kind: usage.MessagePass, Tokens: usage.Tokens{Input: 180}}}}, 300},
		"one pass above the threshold": {CallSpec{Tools: searches}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 350}, Passes: []usage.Pass{{Kind: usage.MessagePass, Tokens: usage.Tokens{Input: 100}}, {Kind: usage.MessagePass, Tokens: usage.Tokens{Input: 250}}}}, 100 + 500},
	} {
		p := gpt()
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		b := bounded(t, &p, c.spec)
		got := p.Charge(b, &c.report)
		if got.Amount != c.want || got.Unlisted != "" {
			t.Errorf("%s is charged %d, %q, want %d", name, got.Amount, got.Unlisted, c.want)
		}
	}
}

func TestToolUsesAreChargedUpToTheReservation(t *testing.T) {
	t.Parallel()
	search := func(uses int64) ServerTool { return ServerTool{Name: "web_search", MaxUses: uses} }
	uses := func(tool string, n int64) usage.Report {
		return usage.Report{CountsTools: true, Tools: []usage.ToolUse{{Name: tool, Uses: n}}}
	}
	for name, c := range map[string]struct {
		tools  []ServerTool
		report usage.Report
		want   money.Amount
		cut    bool
	}{
		"the declared number":     {[]ServerTool{search(3)}, uses("web_search", 3), 3000, false},
		"more than declared":      {[]ServerTool{search(3)}, uses("web_search", 300), 3000, true},
		"declared twice":          {[]ServerTool{search(3), search(1)}, uses("web_search", 300), 4000, true},
		"the max of the price":    {[]ServerTool{search(0)}, uses("web_search", 1_000_000_000), 2000, true},
		"the default":             {[]ServerTool{{Name: "code_execution"}}, uses("code_execution", 1<<53), 1000, true},
		"undeclared":              {nil, uses("web_search", 2), 2000, false},
		"undeclared, too many":    {nil, uses("web_search", 1<<53), 2000, true},
		"undeclared and declared": {[]ServerTool{search(1)}, uses("code_execution", 11), 1000, true},
	} {
		p := gpt()
		if got := p.Charge(bounded(t, &p, CallSpec{Tools: c.tools}), &c.report); got.Amount != c.want || got.Cut != c.cut {
			t.Errorf("%s: charged %d, cut %v; want %d, %v", name, got.Amount, got.Cut, c.want, c.cut)
		}
	}
}

func TestAdvisorPassesAreChargedUpToTheReservation(t *testing.T) {
	t.Parallel()
	plain := Price{Model: "p", TokenPrices: TokenPrices{Input: amount("0.001"), Output: amount("0.001")}, Context: 1000, MaxOutput: 100}
	sage, oracle := plain, plain
	sage.Input, oracle.Input = amount("0.01"), amount("0.1")
	advisors := []NamedModel{
		{Param: "tools[0].model", Name: "sage", Price: &sage, MaxUses: 2, MaxTokens: 5},
		{Param: "tools[1].model", Name: "oracle", Price: &oracle, MaxUses: 1},
	}
	pass := func(model string, output int64) usage.Pass {
		return usage.Pass{Kind: usage.AdvisorPass, Model: model, Tokens: usage.Tokens{Input: 1, Output: output}}
	}
	for name, c := range map[string]struct {
		models []NamedModel
		passes []usage.Pass
		want   money.Amount
		cut    bool
	}{
		"within":           {advisors, []usage.Pass{pass("sage", 5), pass("oracle", 9), pass("sage-2", 0)}, 15 + 109 + 10, false},
		"more uses":        {advisors, []usage.Pass{pass("sage", 0), pass("sage", 0), pass("oracle", 0), pass("sage", 0), pass("oracle", 0)}, 120, true},
		"more tokens":      {advisors, []usage.Pass{pass("sage", 50)}, 15, true},
		"undeclared":       {nil, slices.Repeat([]usage.Pass{pass("sage", 1)}, 10), 20, false},
		"undeclared, more": {nil, slices.Repeat([]usage.Pass{pass("sage", 1)}, 60), 20, true},
	} {
		got := plain.Charge(bounded(t, &plain, CallSpec{Models: c.models}), &usage.Report{Passes: c.passes})
		if got.Amount != c.want || got.Cut != c.cut {
			t.Errorf("%s: charged %d, cut %v; want %d, %v", name, got.Amount, got.Cut, c.want, c.cut)
		}
	}
}

func TestExcessIsTheCostBeyondTheBounds(t *testing.T) {
	t.Parallel()
	plain := Price{Model: "p", TokenPrices: TokenPrices{Input: amount("0.001"), Output: amount("0.001")}, Context: 1000, MaxOutput: 100}
	sage := plain
	advised := []NamedModel{{Param: "tools[0].model", Name: "sage", Price: &sage, MaxUses: 1}}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]Price{plain, gpt()}).Draw(t, "price")
		a := CallSpec{BodyBytes: 300, MaxTokens: 10, HasMaxTokens: true, Models: rapid.SampledFrom([][]NamedModel{nil, advised}).Draw(t, "models")}
		b, refused := p.Bounds(a)
		if refused != nil {
			t.Fatal(refused)
		}
		r := usage.Report{CountsTools: true, Tokens: tokens(3000).Draw(t, "tokens")}
		for range rapid.IntRange(0, 3).Draw(t, "passes") {
			kind := rapid.SampledFrom([]usage.PassKind{usage.CompactionPass, usage.AdvisorPass}).Draw(t, "kind")
			r.Passes = append(r.Passes, usage.Pass{Kind: kind, Tokens: tokens(3000).Draw(t, "pass")})
		}
		if n := rapid.Int64Range(0, 20).Draw(t, "searches"); n > 0 {
			r.Tools = []usage.ToolUse{{Name: "web_search", Uses: n}}
		}
		c := p.Charge(b, &r)
		excess := p.Excess(b, &r, c.Amount)
		if !c.Cut && excess != 0 || excess < 0 || excess > maxExcess*b.maxCharge {
			t.Fatalf("%+v is charged %+v, the excess is %v", r, c, excess)
		}
		unlimited := b
		unlimited.Input, unlimited.Output, unlimited.maxCharge, unlimited.unbounded = 1<<60, 1<<60, money.Max, true
		if all := p.Charge(unlimited, &r); excess != min(max(all.Amount-c.Amount, 0), maxExcess*b.maxCharge) {
			t.Fatalf("%+v is charged %v of %v, the excess is %v", r, c.Amount, all.Amount, excess)
		}
	})
}

func TestAnUnknownTierIsChargedAtTheHighestListedRate(t *testing.T) {
	t.Parallel()
	p := gpt()
	report := usage.Report{Tier: "scale", Tokens: usage.Tokens{Input: 100, Output: 10}}
	got := p.Charge(bounded(t, &p, CallSpec{}), &report)
	if got.Amount != 800 || got.Unlisted != "scale" {
		t.Errorf("the charge is %+v", got)
	}
	// The charge is at most the price of the requested tier.
	b := bounded(t, &p, CallSpec{HasMaxTokens: true, Tiers: []Option{{"service_tier", "flex"}}})
	report.Tokens = usage.Tokens{Input: 1000}
	if got = p.Charge(b, &report); got.Amount != 1650 || !got.Cut {
		t.Errorf("with a requested tier, the charge is %+v", got)
	}
	p.Tier = nil
	if got = p.Charge(bounded(t, &p, CallSpec{}), &usage.Report{Tier: "scale", Tokens: usage.Tokens{Input: 100, Output: 10}}); got.Amount != 200 || got.Unlisted != "" {
		t.Errorf("without tiers, the charge is %+v", got)
	}
	report = usage.Report{Geo: "mars", Tokens: usage.Tokens{Input: 100}}
	if got = p.Charge(bounded(t, &p, CallSpec{}), &report); got.Amount != 110 || got.Unlisted != "mars" {
		t.Errorf("in an unknown region, the charge is %+v", got)
	}
}

func TestAdditionalModelsHaveTheirOwnPrices(t *testing.T) {
	t.Parallel()
	cheap := Price{Model: "c", TokenPrices: TokenPrices{Input: amount("0.001"), Output: amount("0.001")}, Context: 1000, MaxOutput: 100}
	expensive := Price{Model: "d", TokenPrices: TokenPrices{Input: amount("0.01"), Output: amount("0.01")}, Context: 2000, MaxOutput: 100}
	spec := CallSpec{Model: "cheap", BodyBytes: 30, MaxTokens: 10, HasMaxTokens: true}

	fallback := spec
	fallback.Models = []NamedModel{{Param: "fallbacks[0].model", Name: "expensive", Price: &expensive}}
	b := bounded(t, &cheap, fallback)
	if got := cheap.HighestCost(b); got != 200 {
		t.Errorf("with a fallback, %d is reserved", got)
	}
	tokens := usage.Tokens{Input: 10, Output: 5}
	for name, c := range map[string]struct {
		report usage.Report
		want   money.Amount
	}{
		"the model itself":          {usage.Report{Model: usage.NameOf("cheap-20260101"), Tokens: tokens}, 15},
		"an unnamed model":          {usage.Report{Tokens: tokens}, 150},
		"the fallback, by its name": {usage.Report{Model: usage.NameOf("expensive-20260101"), Tokens: tokens}, 150},
		"the fallback, by its pass": {usage.Report{Model: usage.NameOf("cheap"), Tokens: tokens, Passes: []usage.Pass{{Kind: usage.MessagePass, Model: "cheap", Tokens: usage.Tokens{Input: 9}}, {Kind: usage.FallbackPass, Model: "expensive", Tokens: tokens}}}, 150},
		"an unknown model":          {usage.Report{Model: usage.NameOf("expensive2"), Tokens: tokens}, 150},
		"a declined pass":           {usage.Report{Model: usage.NameOf("cheap"), Tokens: tokens, Passes: []usage.Pass{{Kind: usage.MessagePass, Model: "cheap", Tokens: tokens}}}, 15},
	} {
		if got := cheap.Charge(b, &c.report); got.Amount != c.want {
			t.Errorf("answered by %s: charged %d, want %d", name, got.Amount, c.want)
		}
	}

	advised := spec
	advised.Models = []NamedModel{{Param: "tools[0].model", Name: "expensive", Price: &expensive, MaxUses: 2, MaxTokens: 50}}
	b = bounded(t, &cheap, advised)
	// Three passes of 1,000 and 10 tokens, and two of 2,000 and 50.
	if got := cheap.HighestCost(b); got != 3*1010+2*20_500 {
		t.Errorf("with an advisor, %d is reserved", got)
	}
	report := usage.Report{Tokens: tokens, Passes: []usage.Pass{
		{Kind: usage.MessagePass, Model: "cheap", Tokens: tokens},
		{Kind: usage.AdvisorPass, Model: "expensive-20260101", Tokens: usage.Tokens{Input: 100, Output: 20}},
		{Kind: usage.AdvisorPass, Model: "expensive-20260101", Tokens: usage.Tokens{Input: 5000}},
	}}
	if got := cheap.Charge(b, &report); got.Amount != 15+1200+20_000 || got.Tokens.Input != 10+100+2000 || !got.Cut {
		t.Errorf("with an advisor, the charge is %+v", got)
	}
	moderated := spec
	moderated.Models = []NamedModel{{Param: "moderation.model", Name: "m", Price: &expensive}}
	b = bounded(t, &cheap, moderated)
	if got := cheap.Charge(b, &usage.Report{Model: usage.NameOf("another"), Tokens: tokens}); cheap.HighestCost(b) != 20 || got.Amount != 15 {
		t.Errorf("with a moderation, %d is reserved and %d charged", cheap.HighestCost(b), got.Amount)
	}
	advised.Models[0].Price = nil
	if got := cheap.Charge(bounded(t, &cheap, advised), &report); got.Amount != 15 {
		t.Errorf("with a free advisor, the charge is %+v", got)
	}
}
