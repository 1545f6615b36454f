package catalog

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestTheHighestReachableRateIsReserved(t *testing.T) {
	t.Parallel()
	tier := func(word string) []Option { return []Option{{"service_tier", word}} }
	usual := Ask{BodyBytes: 300, MaxTokens: 10, HasMaxTokens: true, Tiers: tier("default"), Geo: Option{"inference_geo", "global"}}
	for name, c := range map[string]struct {
		change func(*Ask)
		want   money.Amount
	}{
		"the usual tier":        {func(*Ask) {}, 100 + 100},
		"any tier":              {func(a *Ask) { a.Tiers = nil }, 400 + 400}, // only the input of ultrafast costs more
		"auto":                  {func(a *Ask) { a.Tiers = tier("auto") }, 400 + 400},
		"a named one":           {func(a *Ask) { a.Tiers = tier("flex") }, 50 + 50},
		"a dearer one":          {func(a *Ask) { a.Tiers = tier("priority") }, 400 + 400},
		"a tier and a speed":    {func(a *Ask) { a.Tiers = append(tier("flex"), Option{"speed", "fast"}) }, 400 + 400},
		"a speed alone":         {func(a *Ask) { a.Tiers = []Option{{"speed", "standard"}} }, 400 + 400},
		"any region":            {func(a *Ask) { a.Geo = Option{} }, 110 + 110},
		"a region":              {func(a *Ask) { a.Geo.Value = "us" }, 110 + 110},
		"a long prompt":         {func(a *Ask) { a.BodyBytes = 900 }, 600 + 150},
		"the second, or first":  {func(a *Ask) { a.BodyBytes = 1800 }, 1800 + 100},
		"inline media":          {func(a *Ask) { a.InlineInput = 50 }, 150 + 100},
		"a link":                {func(a *Ask) { a.FullContext = true }, 3000 + 100},
		"audio":                 {func(a *Ask) { a.Audio = true }, 10_000 + 2000},
		"images":                {func(a *Ask) { a.ImageOut = true }, 100 + 500},
		"images as input":       {func(a *Ask) { a.Image = true }, 100 + 100},
		"a compaction":          {func(a *Ask) { a.Compaction = true; a.BodyBytes = 150 }, 100 + 200},
		"a tool, as often said": {func(a *Ask) { a.Tools = []ServerTool{{"t", "web_search", 3}} }, 4*3000 + 4*100 + 3*1000},
		"a tool, by its max":    {func(a *Ask) { a.Tools = []ServerTool{{"t", "web_search", 0}} }, 3*3000 + 3*100 + 2*1000},
		"a tool, by default":    {func(a *Ask) { a.Tools = []ServerTool{{"t", "code_execution", 0}} }, 11*3000 + 11*100 + 10*100},
		"no output at all":      {func(a *Ask) { a.MaxTokens = 0 }, 100},
		"no bound of output":    {func(a *Ask) { a.FullOutput = true }, 100 + 1000},
	} {
		p, ask := gpt(), usual
		c.change(&ask)
		b := bounded(t, &p, ask)
		if got := p.Greatest(b); got != c.want {
			t.Errorf("%s: %d is reserved, want %d", name, got, c.want)
		}
		if fits := p.Fits(ask, p.Greatest(b)); fits < ask.MaxTokens {
			t.Errorf("%s: %d tokens fit, want %d", name, fits, ask.MaxTokens)
		}
	}
}

func TestCallsWithoutAPriceAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ask         Ask
		param, says string
	}{
		"a tier":      {Ask{Tiers: []Option{{"service_tier", "scale"}}}, "service_tier", "`service_tier`: " + `"scale" has no price for this model; allowed: flex, priority, fast, ultrafast, default`},
		"a speed":     {Ask{Tiers: []Option{{"service_tier", "auto"}, {"speed", "warp"}}}, "speed", `"warp" has no price`},
		"a region":    {Ask{Geo: Option{"inference_geo", "eu"}}, "inference_geo", `"eu" has no price for this model; allowed: us, global`},
		"a tool":      {Ask{Tools: []ServerTool{{"tools[1].type", "file_search", 0}}}, "tools[1].type", "allowed: web_search, code_execution"},
		"a fallback":  {Ask{Tiers: []Option{{"service_tier", "flex"}}, Models: []NamedModel{{Param: "fallbacks[0].model", Name: "a", Price: new(claude())}}}, "service_tier", `"flex" has no price for this model; allowed: default`},
		"much work":   {Ask{Tools: []ServerTool{{"t", "web_search", 1 << 40}}, Choices: 1 << 40}, "n", "than can be counted"},
		"many models": {Ask{Models: []NamedModel{{Param: "tools[0].model", Name: "a", Price: new(claude()), MaxUses: 1 << 60}}}, "tools", "of so many tool uses cannot be counted"},
	} {
		p := gpt()
		_, refused := p.Bounds(c.ask)
		code := fault.UnpricedOption
		if strings.Contains(c.says, "counted") {
			code = fault.InvalidParameter
		}
		if refused == nil || refused.Code != code || refused.Param != c.param || !strings.Contains(refused.Message, c.says) {
			t.Errorf("%s was answered %v", name, refused)
		}
	}
	p := claude()
	for param, ask := range map[string]Ask{
		"messages":   {Audio: true},
		"audio":      {Audio: true, AudioParam: "audio"},
		"modalities": {ImageOut: true},
	} {
		if _, refused := p.Bounds(ask); refused == nil || refused.Code != fault.UnpricedOption || refused.Param != param {
			t.Errorf("%s was answered %v", param, refused)
		}
	}
	if _, refused := p.Bounds(Ask{Image: true, Tiers: []Option{{"service_tier", "standard_only"}, {"speed", "standard"}}, Geo: Option{"inference_geo", "global"}}); refused != nil {
		t.Errorf("what needs no price was answered %v", refused)
	}
}

func TestInvalidPriceRulesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Price)
		want   string
	}{
		"a negative kind":      {func(p *Price) { p.AudioInput = amount("-1") }, "audio_input is -1.00"},
		"above the context":    {func(p *Price) { p.Above[0].Tokens = 1000 }, "above 1000: it must be from 1 to less than context"},
		"above nothing":        {func(p *Price) { p.Above[0].Tokens = 0 }, "above 0: it must be from 1"},
		"above without prices": {func(p *Price) { p.Above[0].TokenPrices = TokenPrices{} }, "above 200: it names no price"},
		"above twice":          {func(p *Price) { p.Above[1].Tokens = 200 }, "above 200 is there twice"},
		"negative above":       {func(p *Price) { p.Above[0].Output = amount("-1") }, "above 200: output is -1.00"},
		"no name":              {func(p *Price) { p.Tier[0].Names = nil }, "it has no name"},
		"a tier of nothing":    {func(p *Price) { p.Tier[0].Factor = 0 }, "either a factor"},
		"a tier of both":       {func(p *Price) { p.Tier[1].Factor = money.Unit }, "either a factor"},
		"a negative factor":    {func(p *Price) { p.Tier[0].Factor = -1 }, "from 0.0001 to 1000"},
		"five places":          {func(p *Price) { p.Tier[0].Factor = *amount("0.00001") }, "at most four decimal places"},
		"a negative tier":      {func(p *Price) { p.Tier[1].Output = amount("-1") }, "tier priority fast: output is -1.00"},
		"above in a tier":      {func(p *Price) { p.Tier[2].Above[0].Tokens = 2000 }, "tier ultrafast: above 2000: it must be from 1"},
		"a tier twice":         {func(p *Price) { p.Tier[0].Names = []string{"fast"} }, "tier fast is there twice"},
		"the usual tier":       {func(p *Price) { p.Tier[0].Names = []string{"default"} }, "tier default: the rates of the price itself apply to it: set those"},
		"a tier in capitals":   {func(p *Price) { p.Tier[0].Names = []string{"FAST"} }, "lower-case"},
		"a region twice":       {func(p *Price) { p.Geo = append(p.Geo, p.Geo[0]) }, "geo us is there twice"},
		"the usual region":     {func(p *Price) { p.Geo[0].Name = "global" }, "the rates of the price itself apply to it"},
		"no factor":            {func(p *Price) { p.Geo[0].Factor = 0 }, "geo us: the factor"},
		"a tool twice":         {func(p *Price) { p.Call[1].Tool = "web_search" }, "call web_search is there twice"},
		"a negative tool":      {func(p *Price) { p.Call[0].Price = -1 }, "must not be negative"},
		"too often":            {func(p *Price) { p.Call[0].Max = 1001 }, "max must be from 1 to 1000"},
		"no tokens":            {func(p *Price) { *p = Price{Model: "a", Request: 1, Geo: p.Geo} }, "need a price per token"},
		"no context":           {func(p *Price) { p.Context, p.Above, p.Tier = 0, nil, nil }, "needs context and max_output"},
		"too dear a tier":      {func(p *Price) { p.Tier[1].Input, p.Context = amount("9223372036"), 2_000_000 }, "more than 9223372036.854775807"},
		"too dear an audio":    {func(p *Price) { p.AudioInput, p.Context = amount("9223372036"), 2_000_000 }, "more than 9223372036.854775807"},
	} {
		p := gpt()
		c.change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s was answered %v, want %q", name, err, c.want)
		}
	}
}

func TestNoChargeExceedsTheReservation(t *testing.T) {
	t.Parallel()
	words := rapid.SampledFrom([]string{"", "default", "flex", "priority", "fast", "ultrafast", "scale", "us", "standard"})
	kinds := rapid.SampledFrom([]usage.PassKind{usage.OtherPass, usage.MessagePass, usage.FallbackPass, usage.CompactionPass, usage.AdvisorPass})
	rapid.Check(t, func(t *rapid.T) {
		p, dear := gpt(), claude()
		ask := asks().Draw(t, "ask")
		if rapid.Bool().Draw(t, "has models") {
			ask.Models = []NamedModel{{Param: "tools[0].model", Name: "d", Price: &dear}, {Param: "fallbacks[0].model", Name: "e", Price: &dear}}
		}
		b, refused := p.Bounds(ask)
		if refused != nil {
			t.Skip(refused)
		}
		report := usage.Report{
			Tokens: tokens(1<<53).Draw(t, "tokens"), Tier: words.Draw(t, "tier"), Speed: words.Draw(t, "speed"), Geo: words.Draw(t, "geo"),
			Model: usage.NameOf(rapid.SampledFrom([]string{"", "d", "e", "x"}).Draw(t, "model")),
			Tools: []usage.ToolUse{{Name: "web_search", Uses: rapid.Int64Range(0, 1<<53).Draw(t, "uses")}},
		}
		for range rapid.IntRange(0, 5).Draw(t, "passes") {
			report.Passes = append(report.Passes, usage.Pass{Kind: kinds.Draw(t, "kind"), Model: "e", Tokens: tokens(1<<53).Draw(t, "pass")})
		}
		got := p.Charge(b, &report)
		most := b.most
		if b.options != nil {
			for _, other := range b.options.alternatives {
				most = max(most, other.bounds.most)
			}
		}
		if got.Amount < 0 || got.Amount > most {
			t.Fatalf("%+v is charged %v, more than %v", report, got.Amount, most)
		}
		checkTotal(t, got)
	})
}

func TestChargingAllocatesNothing(t *testing.T) {
	ruled := claude()
	ruled.Above = []Above{{Tokens: 200_000, TokenPrices: TokenPrices{Input: amount("6"), Output: amount("22.5")}}}
	for name, p := range map[string]Price{"a plain price": claude(), "a price with rules": ruled} {
		var sum money.Amount
		if n := testing.AllocsPerRun(100, func() {
			// The report must not move to the heap.
			report := usage.Report{Tokens: usage.Tokens{Input: 1200, CacheRead: 500_000, Output: 300}, Tier: "standard"}
			b, _ := p.Bounds(Ask{BodyBytes: 3000, MaxTokens: 4096, HasMaxTokens: true})
			sum += p.Greatest(b) + p.Charge(b, &report).Amount
		}); n != 0 || sum == 0 {
			t.Errorf("%s: %v allocations for %v", name, n, sum)
		}
	}
}

func BenchmarkChargingWithRules(b *testing.B) {
	p := gpt()
	report := usage.Report{Tokens: usage.Tokens{Input: 1200, CacheRead: 500, Output: 30}, Tier: "flex"}
	b.ReportAllocs()
	for b.Loop() {
		bounds, _ := p.Bounds(Ask{BodyBytes: 3000, MaxTokens: 4096, HasMaxTokens: true})
		p.Charge(bounds, &report)
	}
}
