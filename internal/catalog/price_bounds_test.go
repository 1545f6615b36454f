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
	usual := CallSpec{BodyBytes: 300, MaxTokens: 10, HasMaxTokens: true, Tiers: tier("default"), Geo: Option{"inference_geo", "global"}}
	for name, c := range map[string]struct {
		change func(*CallSpec)
		want   money.Amount
	}{
		"the usual tier":        {func(*CallSpec) {}, 100 + 100},
		"any tier":              {func(a *CallSpec) { a.Tiers = nil }, 400 + 400}, // only the input of ultrafast costs more
		"auto":                  {func(a *CallSpec) { a.Tiers = tier("auto") }, 400 + 400},
		"a named tier":          {func(a *CallSpec) { a.Tiers = tier("flex") }, 50 + 50},
		"a more expensive tier": {func(a *CallSpec) { a.Tiers = tier("priority") }, 400 + 400},
		"a tier and a speed":    {func(a *CallSpec) { a.Tiers = append(tier("flex"), Option{"speed", "fast"}) }, 400 + 400},
		"a speed alone":         {func(a *CallSpec) { a.Tiers = []Option{{"speed", "standard"}} }, 400 + 400},
		"any region":            {func(a *CallSpec) { a.Geo = Option{} }, 110 + 110},
		"a region":              {func(a *CallSpec) { a.Geo.Value = "us" }, 110 + 110},
		"a long prompt":         {func(a *CallSpec) { a.BodyBytes = 900 }, 600 + 150},
		"the second threshold":  {func(a *CallSpec) { a.BodyBytes = 1800 }, 1800 + 100},
		"inline media":          {func(a *CallSpec) { a.InlineInput = 50 }, 150 + 100},
		"a link":                {func(a *CallSpec) { a.FullContext = true }, 3000 + 100},
		"audio":                 {func(a *CallSpec) { a.Audio = true }, 10_000 + 2000},
		"images":                {func(a *CallSpec) { a.ImageOut = true }, 100 + 500},
		"images as input":       {func(a *CallSpec) { a.Image = true }, 100 + 100},
		"a compaction":          {func(a *CallSpec) { a.Compaction = true; a.BodyBytes = 150 }, 100 + 200},
		"a tool with max_uses":  {func(a *CallSpec) { a.Tools = []ServerTool{{"t", "web_search", 3}} }, 4*3000 + 4*100 + 3*1000},
		"a tool, by its max":    {func(a *CallSpec) { a.Tools = []ServerTool{{"t", "web_search", 0}} }, 3*3000 + 3*100 + 2*1000},
		"a tool, by default":    {func(a *CallSpec) { a.Tools = []ServerTool{{"t", "code_execution", 0}} }, 11*3000 + 11*100 + 10*100},
		"no output":             {func(a *CallSpec) { a.MaxTokens = 0 }, 100},
		"no limit of output":    {func(a *CallSpec) { a.FullOutput = true }, 100 + 1000},
	} {
		p, spec := gpt(), usual
		c.change(&spec)
		b := bounded(t, &p, spec)
		if got := p.HighestCost(b); got != c.want {
			t.Errorf("%s: %d is reserved, want %d", name, got, c.want)
		}
		if fits := p.Fits(spec, p.HighestCost(b)); fits < spec.MaxTokens {
			t.Errorf("%s: %d tokens fit, want %d", name, fits, spec.MaxTokens)
		}
	}
}

func TestCallsWithoutAPriceAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec        CallSpec
		param, text string
	}{
		"a tier":     {CallSpec{Tiers: []Option{{"service_tier", "scale"}}}, "service_tier", "`service_tier`: " + `"scale" has no price for this model; allowed: flex, priority, fast, ultrafast, default`},
		"a speed":    {CallSpec{Tiers: []Option{{"service_tier", "auto"}, {"speed", "warp"}}}, "speed", `"warp" has no price`},
		"a region":   {CallSpec{Geo: Option{"inference_geo", "eu"}}, "inference_geo", `"eu" has no price for this model; allowed: us, global`},
		"a tool":     {CallSpec{Tools: []ServerTool{{"tools[1].type", "file_search", 0}}}, "tools[1].type", "allowed: web_search, code_execution"},
		"a fallback": {CallSpec{Tiers: []Option{{"service_tier", "flex"}}, Models: []NamedModel{{Param: "fallbacks[0].model", Name: "a", Price: new(claude())}}}, "service_tier", `"flex" has no price for this model; allowed: default`},
		"much work":  {CallSpec{Tools: []ServerTool{{"t", "web_search", 1 << 40}}, Choices: 1 << 40}, "n", "prompts is out of range"},
		"many texts": {CallSpec{Prompts: 1 << 60, PromptParam: "input"}, "input", "prompts is out of range"},
		"many uses":  {CallSpec{Models: []NamedModel{{Param: "tools[0].model", Name: "a", Price: new(claude()), MaxUses: 1 << 60}}}, "tools", "tool uses is out of range"},
	} {
		p := gpt()
		_, refused := p.Bounds(c.spec)
		code := fault.UnpricedOption
		if strings.Contains(c.text, "out of range") {
			code = fault.InvalidParameter
		}
		if refused == nil || refused.Code != code || refused.Param != c.param || !strings.Contains(refused.Message, c.text) {
			t.Errorf("%s: the error is %v", name, refused)
		}
	}
	p := claude()
	for param, spec := range map[string]CallSpec{
		"messages":   {Audio: true},
		"audio":      {Audio: true, AudioParam: "audio"},
		"modalities": {ImageOut: true},
	} {
		if _, refused := p.Bounds(spec); refused == nil || refused.Code != fault.UnpricedOption || refused.Param != param {
			t.Errorf("%s: the error is %v", param, refused)
		}
	}
	if _, refused := p.Bounds(CallSpec{Image: true, Tiers: []Option{{"service_tier", "standard_only"}, {"speed", "standard"}}, Geo: Option{"inference_geo", "global"}}); refused != nil {
		t.Errorf("a call with only usual options: the error is %v", refused)
	}
}

func TestInvalidPriceRulesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Price)
		want   string
	}{
		"a negative kind":        {func(p *Price) { p.AudioInput = amount("-1") }, "audio_input is -1.00"},
		"above the context":      {func(p *Price) { p.Above[0].Tokens = 1000 }, "above 1000: it must be from 1 to less than context"},
		"above zero":             {func(p *Price) { p.Above[0].Tokens = 0 }, "above 0: it must be from 1"},
		"above without prices":   {func(p *Price) { p.Above[0].TokenPrices = TokenPrices{} }, "above 200: it names no price"},
		"above twice":            {func(p *Price) { p.Above[1].Tokens = 200 }, "above 200 is given twice"},
		"a negative price above": {func(p *Price) { p.Above[0].Output = amount("-1") }, "above 200: output is -1.00"},
		"no name":                {func(p *Price) { p.Tier[0].Names = nil }, "it has no name"},
		"a tier without prices":  {func(p *Price) { p.Tier[0].Factor = 0 }, "either a factor"},
		"a tier with both":       {func(p *Price) { p.Tier[1].Factor = money.Unit }, "either a factor"},
		"a negative factor":      {func(p *Price) { p.Tier[0].Factor = -1 }, "from 0.0001 to 1000"},
		"five places":            {func(p *Price) { p.Tier[0].Factor = *amount("0.00001") }, "at most four decimal places"},
		"a negative tier":        {func(p *Price) { p.Tier[1].Output = amount("-1") }, "tier priority fast: output is -1.00"},
		"above in a tier":        {func(p *Price) { p.Tier[2].Above[0].Tokens = 2000 }, "tier ultrafast: above 2000: it must be from 1"},
		"a tier twice":           {func(p *Price) { p.Tier[0].Names = []string{"fast"} }, "tier fast is given twice"},
		"the usual tier":         {func(p *Price) { p.Tier[0].Names = []string{"default"} }, "tier default: the rates of the price itself apply to it: set those"},
		"an upper-case tier":     {func(p *Price) { p.Tier[0].Names = []string{"FAST"} }, "lower-case"},
		"a region twice":         {func(p *Price) { p.Geo = append(p.Geo, p.Geo[0]) }, "geo us is given twice"},
		"the usual region":       {func(p *Price) { p.Geo[0].Name = "global" }, "the rates of the price itself apply to it"},
		"no factor":              {func(p *Price) { p.Geo[0].Factor = 0 }, "geo us: the factor"},
		"a tool twice":           {func(p *Price) { p.Call[1].Tool = "web_search" }, "call web_search is given twice"},
		"a negative tool":        {func(p *Price) { p.Call[0].Price = -1 }, "must not be negative"},
		"too many uses":          {func(p *Price) { p.Call[0].Max = 1001 }, "max must be from 1 to 1000"},
		"no tokens":              {func(p *Price) { *p = Price{Model: "a", Request: 1, Geo: p.Geo} }, "need a price per token"},
		"no context":             {func(p *Price) { p.Context, p.Above, p.Tier = 0, nil, nil }, "needs context and max_output"},
		"too expensive tier":     {func(p *Price) { p.Tier[1].Input, p.Context = amount("9223372036"), 2_000_000 }, "more than 9223372036.854775807"},
		"too expensive audio":    {func(p *Price) { p.AudioInput, p.Context = amount("9223372036"), 2_000_000 }, "more than 9223372036.854775807"},
	} {
		p := gpt()
		c.change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
	}
}

func TestNoChargeExceedsTheReservation(t *testing.T) {
	t.Parallel()
	words := rapid.SampledFrom([]string{"", "default", "flex", "priority", "fast", "ultrafast", "scale", "us", "standard"})
	kinds := rapid.SampledFrom([]usage.PassKind{usage.OtherPass, usage.MessagePass, usage.FallbackPass, usage.CompactionPass, usage.AdvisorPass})
	rapid.Check(t, func(t *rapid.T) {
		p, expensive := gpt(), claude()
		spec := specs().Draw(t, "call")
		if rapid.Bool().Draw(t, "has models") {
			spec.Models = []NamedModel{{Param: "tools[0].model", Name: "d", Price: &expensive}, {Param: "fallbacks[0].model", Name: "e", Price: &expensive}}
		}
		b, refused := p.Bounds(spec)
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
		limit := b.maxCharge
		if b.options != nil {
			for _, other := range b.options.alternatives {
				limit = max(limit, other.bounds.maxCharge)
			}
		}
		if got.Amount < 0 || got.Amount > limit {
			t.Fatalf("%+v is charged %v, want at most %v", report, got.Amount, limit)
		}
		checkTotal(t, got)
	})
}

func TestChargingAllocatesNothing(t *testing.T) {
	withRules := claude()
	withRules.Above = []Above{{Tokens: 200_000, TokenPrices: TokenPrices{Input: amount("6"), Output: amount("22.5")}}}
	for name, p := range map[string]Price{"a plain price": claude(), "a price with rules": withRules} {
		var sum money.Amount
		if n := testing.AllocsPerRun(100, func() {
			// The report must not move to the heap.
			report := usage.Report{Tokens: usage.Tokens{Input: 1200, CacheRead: 500_000, Output: 300}, Tier: "standard"}
			b, _ := p.Bounds(CallSpec{BodyBytes: 3000, MaxTokens: 4096, HasMaxTokens: true})
			sum += p.HighestCost(b) + p.Charge(b, &report).Amount
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
		bounds, _ := p.Bounds(CallSpec{BodyBytes: 3000, MaxTokens: 4096, HasMaxTokens: true})
		p.Charge(bounds, &report)
	}
}
