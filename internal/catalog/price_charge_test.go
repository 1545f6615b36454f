package catalog

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// gpt is a price with all options. An input token costs one nano-unit, an
// output token ten.
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

func bounded(t *testing.T, p *Price, a Ask) Bounds {
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
		ask    Ask
		report usage.Report
		want   money.Amount // in nano-units
	}{
		"plain":                  {Ask{}, usage.Report{Tokens: usage.Tokens{Input: 100, Output: 10}}, 200},
		"audio":                  {Ask{Audio: true}, usage.Report{Tokens: usage.Tokens{Input: 1, AudioInput: 2, AudioOutput: 3}}, 1 + 200 + 600},
		"images":                 {Ask{ImageOut: true}, usage.Report{Tokens: usage.Tokens{ImageInput: 5, ImageOutput: 3}}, 5 + 150},
		"at the threshold":       {Ask{}, usage.Report{Tokens: usage.Tokens{Input: 200, Output: 10}}, 200 + 100},
		"above it, the whole":    {Ask{}, usage.Report{Tokens: usage.Tokens{Input: 201, Output: 10}}, 402 + 150},
		"the cache is prompt":    {Ask{}, usage.Report{Tokens: usage.Tokens{Input: 101, CacheRead: 100}}, 202 + 10},
		"above the second":       {Ask{}, usage.Report{Tokens: usage.Tokens{Input: 501, Output: 10}}, 1503 + 100},
		"a factor":               {Ask{}, usage.Report{Tier: "flex", Tokens: usage.Tokens{Input: 100, Output: 10}}, 100},
		"rounded up once":        {Ask{}, usage.Report{Tier: "flex", Geo: "us", Tokens: usage.Tokens{Input: 3, CacheRead: 1}}, 2}, // 3.1 × 0.55 = 1.705
		"a block":                {Ask{}, usage.Report{Tier: "priority", Tokens: usage.Tokens{Input: 100, Output: 10, CacheRead: 10}}, 400 + 400 + 1},
		"its other name":         {Ask{}, usage.Report{Speed: "fast", Tokens: usage.Tokens{Input: 100, Output: 10}}, 800},
		"a tier after above":     {Ask{}, usage.Report{Tier: "flex", Tokens: usage.Tokens{Input: 300, Output: 10}}, (600 + 150) / 2},
		"a block replaces above": {Ask{}, usage.Report{Tier: "priority", Tokens: usage.Tokens{Input: 300, Output: 10}}, 1200 + 400},
		"above in a tier":        {Ask{}, usage.Report{Tier: "ultrafast", Tokens: usage.Tokens{Input: 300, Output: 10}}, 3600 + 150},
		"the region last":        {Ask{}, usage.Report{Tier: "flex", Geo: "us", Tokens: usage.Tokens{Input: 400, Output: 0}}, 440},
		"usual words":            {Ask{}, usage.Report{Tier: "standard", Speed: "standard", Geo: "not_available", Tokens: usage.Tokens{Input: 100}}, 100},
		"as asked, unreported":   {Ask{Tiers: []Option{{"service_tier", "flex"}}, Geo: Option{"inference_geo", "us"}}, usage.Report{Tokens: usage.Tokens{Input: 100}}, 55},
		"the answer decides":     {Ask{Tiers: []Option{{"service_tier", "priority"}}}, usage.Report{Tier: "default", Tokens: usage.Tokens{Input: 100}}, 100},
		"tools after factors": {
			Ask{Tools: searches},
			usage.Report{Tier: "flex", CountsTools: true, Tools: []usage.ToolUse{{Name: "web_search", Uses: 2}}, Tokens: usage.Tokens{Input: 100}}, 50 + 2000,
		},
		"a tool that was not used":    {Ask{Tools: searches}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 100}}, 100},
		"a tool that nobody counts":   {Ask{Tools: searches}, usage.Report{Tokens: usage.Tokens{Input: 100}}, 100 + 1000},
		"a tool that is not counted":  {Ask{Tools: executes}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 100}}, 100 + 100},
		"more than can be":            {Ask{BodyBytes: 3, MaxTokens: 1, HasMaxTokens: true, Tiers: []Option{{"service_tier", "default"}}}, usage.Report{Tokens: usage.Tokens{Input: 5000, Output: 5}}, 3000 + 10},
		"a tool loop beyond context":  {Ask{Tools: searches}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 3900}}, 11700},
		"a compaction beside":         {Ask{Compaction: true}, usage.Report{Tokens: usage.Tokens{Input: 100}, Passes: []usage.Pass{{Kind: usage.CompactionPass, Tokens: usage.Tokens{Input: 180, Output: 10}}}}, 100 + 280},
		"each pass by its own prompt": {Ask{Tools: searches}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 300}, Passes: []usage.Pass{{Kind: usage.MessagePass, Tokens: usage.Tokens{Input: 120}}, {Kind: usage.MessagePass, Tokens: usage.Tokens{Input: 180}}}}, 300},
		"one of them long":            {Ask{Tools: searches}, usage.Report{CountsTools: true, Tokens: usage.Tokens{Input: 350}, Passes: []usage.Pass{{Kind: usage.MessagePass, Tokens: usage.Tokens{Input: 100}}, {Kind: usage.MessagePass, Tokens: usage.Tokens{Input: 250}}}}, 100 + 500},
	} {
		p := gpt()
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		b := bounded(t, &p, c.ask)
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
		"as often as said":         {[]ServerTool{search(3)}, uses("web_search", 3), 3000, false},
		"more often":               {[]ServerTool{search(3)}, uses("web_search", 300), 3000, true},
		"declared twice":           {[]ServerTool{search(3), search(1)}, uses("web_search", 300), 4000, true},
		"by the price's max":       {[]ServerTool{search(0)}, uses("web_search", 1_000_000_000), 2000, true},
		"by default":               {[]ServerTool{{Name: "code_execution"}}, uses("code_execution", 1<<53), 1000, true},
		"undeclared":               {nil, uses("web_search", 2), 2000, false},
		"undeclared and too often": {nil, uses("web_search", 1<<53), 2000, true},
		"undeclared beside one":    {[]ServerTool{search(1)}, uses("code_execution", 11), 1000, true},
	} {
		p := gpt()
		if got := p.Charge(bounded(t, &p, Ask{Tools: c.tools}), &c.report); got.Amount != c.want || got.Cut != c.cut {
			t.Errorf("%s: charged %d, cut %v; want %d, %v", name, got.Amount, got.Cut, c.want, c.cut)
		}
	}
}

func TestAdvisorPassesAreChargedUpToTheReservation(t *testing.T) {
	t.Parallel()
	plain := Price{Model: "p", TokenPrices: TokenPrices{Input: amount("0.001"), Output: amount("0.001")}, Context: 1000, MaxOutput: 100}
	sage, oracle := plain, plain
	sage.Input, oracle.Input = amount("0.01"), amount("0.1")
	two := []NamedModel{
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
		"within":           {two, []usage.Pass{pass("sage", 5), pass("oracle", 9), pass("sage-2", 0)}, 15 + 109 + 10, false},
		"more often":       {two, []usage.Pass{pass("sage", 0), pass("sage", 0), pass("oracle", 0), pass("sage", 0), pass("oracle", 0)}, 120, true},
		"more at once":     {two, []usage.Pass{pass("sage", 50)}, 15, true},
		"undeclared":       {nil, slices.Repeat([]usage.Pass{pass("sage", 1)}, 10), 20, false},
		"undeclared, more": {nil, slices.Repeat([]usage.Pass{pass("sage", 1)}, 60), 20, true},
	} {
		got := plain.Charge(bounded(t, &plain, Ask{Models: c.models}), &usage.Report{Passes: c.passes})
		if got.Amount != c.want || got.Cut != c.cut {
			t.Errorf("%s: charged %d, cut %v; want %d, %v", name, got.Amount, got.Cut, c.want, c.cut)
		}
	}
}

func TestExcessIsTheCostOfWhatWasCut(t *testing.T) {
	t.Parallel()
	plain := Price{Model: "p", TokenPrices: TokenPrices{Input: amount("0.001"), Output: amount("0.001")}, Context: 1000, MaxOutput: 100}
	sage := plain
	advised := []NamedModel{{Param: "tools[0].model", Name: "sage", Price: &sage, MaxUses: 1}}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]Price{plain, gpt()}).Draw(t, "price")
		a := Ask{BodyBytes: 300, MaxTokens: 10, HasMaxTokens: true, Models: rapid.SampledFrom([][]NamedModel{nil, advised}).Draw(t, "models")}
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
		if !c.Cut && excess != 0 || excess < 0 || excess > maxExcess*b.most {
			t.Fatalf("%+v is charged %+v, the excess is %v", r, c, excess)
		}
		wide := b // limits that allow everything
		wide.Input, wide.Output, wide.most, wide.unbounded = 1<<60, 1<<60, money.Max, true
		if whole := p.Charge(wide, &r); excess != min(max(whole.Amount-c.Amount, 0), maxExcess*b.most) {
			t.Fatalf("%+v is charged %v of %v, the excess is %v", r, c.Amount, whole.Amount, excess)
		}
	})
}

func TestAnUnknownTierIsChargedAtTheHighestListedRate(t *testing.T) {
	t.Parallel()
	p := gpt()
	report := usage.Report{Tier: "scale", Tokens: usage.Tokens{Input: 100, Output: 10}}
	got := p.Charge(bounded(t, &p, Ask{}), &report)
	if got.Amount != 800 || got.Unlisted != "scale" {
		t.Errorf("it is charged %+v", got)
	}
	// The charge is at most the price of the requested tier.
	b := bounded(t, &p, Ask{HasMaxTokens: true, Tiers: []Option{{"service_tier", "flex"}}})
	report.Tokens = usage.Tokens{Input: 1000}
	if got = p.Charge(b, &report); got.Amount != 1650 || !got.Cut {
		t.Errorf("it is charged %+v, beyond its bound", got)
	}
	p.Tier = nil
	if got = p.Charge(bounded(t, &p, Ask{}), &usage.Report{Tier: "scale", Tokens: usage.Tokens{Input: 100, Output: 10}}); got.Amount != 200 || got.Unlisted != "" {
		t.Errorf("without tiers it is charged %+v", got)
	}
	report = usage.Report{Geo: "mars", Tokens: usage.Tokens{Input: 100}}
	if got = p.Charge(bounded(t, &p, Ask{}), &report); got.Amount != 110 || got.Unlisted != "mars" {
		t.Errorf("elsewhere it is charged %+v", got)
	}
}

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

func TestWhatHasNoPriceIsRefused(t *testing.T) {
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

func TestAdditionalModelsHaveTheirOwnPrices(t *testing.T) {
	t.Parallel()
	cheap := Price{Model: "c", TokenPrices: TokenPrices{Input: amount("0.001"), Output: amount("0.001")}, Context: 1000, MaxOutput: 100}
	dear := Price{Model: "d", TokenPrices: TokenPrices{Input: amount("0.01"), Output: amount("0.01")}, Context: 2000, MaxOutput: 100}
	ask := Ask{Model: "cheap", BodyBytes: 30, MaxTokens: 10, HasMaxTokens: true}

	fallback := ask
	fallback.Models = []NamedModel{{Param: "fallbacks[0].model", Name: "dear", Price: &dear}}
	b := bounded(t, &cheap, fallback)
	if got := cheap.Greatest(b); got != 200 {
		t.Errorf("with a fallback %d is reserved", got)
	}
	tokens := usage.Tokens{Input: 10, Output: 5}
	for name, c := range map[string]struct {
		report usage.Report
		want   money.Amount
	}{
		"itself":           {usage.Report{Model: usage.NameOf("cheap-20260101"), Tokens: tokens}, 15},
		"not said":         {usage.Report{Tokens: tokens}, 15},
		"by its name":      {usage.Report{Model: usage.NameOf("dear-20260101"), Tokens: tokens}, 150},
		"by its pass":      {usage.Report{Model: usage.NameOf("cheap"), Tokens: tokens, Passes: []usage.Pass{{Kind: usage.MessagePass, Model: "cheap", Tokens: usage.Tokens{Input: 9}}, {Kind: usage.FallbackPass, Model: "dear", Tokens: tokens}}}, 150},
		"one that is none": {usage.Report{Model: usage.NameOf("dearest"), Tokens: tokens}, 150},
		"declined is free": {usage.Report{Model: usage.NameOf("cheap"), Tokens: tokens, Passes: []usage.Pass{{Kind: usage.MessagePass, Model: "cheap", Tokens: tokens}}}, 15},
	} {
		if got := cheap.Charge(b, &c.report); got.Amount != c.want {
			t.Errorf("answered by %s: charged %d, want %d", name, got.Amount, c.want)
		}
	}

	advised := ask
	advised.Models = []NamedModel{{Param: "tools[0].model", Name: "dear", Price: &dear, MaxUses: 2, MaxTokens: 50}}
	b = bounded(t, &cheap, advised)
	// Three passes of 1,000 and 10 tokens, and two of 2,000 and 50.
	if got := cheap.Greatest(b); got != 3*1010+2*20_500 {
		t.Errorf("with an advisor %d is reserved", got)
	}
	report := usage.Report{Tokens: tokens, Passes: []usage.Pass{
		{Kind: usage.MessagePass, Model: "cheap", Tokens: tokens},
		{Kind: usage.AdvisorPass, Model: "dear-20260101", Tokens: usage.Tokens{Input: 100, Output: 20}},
		{Kind: usage.AdvisorPass, Model: "dear-20260101", Tokens: usage.Tokens{Input: 5000}},
	}}
	if got := cheap.Charge(b, &report); got.Amount != 15+1200+20_000 || got.Tokens.Input != 10+100+2000 || !got.Cut {
		t.Errorf("with an advisor it is charged %+v", got)
	}
	moderated := ask
	moderated.Models = []NamedModel{{Param: "moderation.model", Name: "m", Price: &dear}}
	b = bounded(t, &cheap, moderated)
	if got := cheap.Charge(b, &usage.Report{Model: usage.NameOf("another"), Tokens: tokens}); cheap.Greatest(b) != 20 || got.Amount != 15 {
		t.Errorf("with a moderation %d is reserved, %d charged", cheap.Greatest(b), got.Amount)
	}
	advised.Models[0].Price = nil
	if got := cheap.Charge(bounded(t, &cheap, advised), &report); got.Amount != 15 {
		t.Errorf("with a free advisor it is charged %+v", got)
	}
}

func TestInvalidPriceRulesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Price)
		want   string
	}{
		"a negative kind":      {func(p *Price) { p.AudioInput = amount("-1") }, "audio_input is -1.00"},
		"above the context":    {func(p *Price) { p.Above[0].Tokens = 1000 }, "above 1000: no prompt reaches it"},
		"above nothing":        {func(p *Price) { p.Above[0].Tokens = 0 }, "above 0: no prompt"},
		"above without prices": {func(p *Price) { p.Above[0].TokenPrices = TokenPrices{} }, "above 200: it names no price"},
		"above twice":          {func(p *Price) { p.Above[1].Tokens = 200 }, "above 200 is there twice"},
		"negative above":       {func(p *Price) { p.Above[0].Output = amount("-1") }, "above 200: output is -1.00"},
		"no name":              {func(p *Price) { p.Tier[0].Names = nil }, "it has no name"},
		"a tier of nothing":    {func(p *Price) { p.Tier[0].Factor = 0 }, "either a factor"},
		"a tier of both":       {func(p *Price) { p.Tier[1].Factor = money.Unit }, "either a factor"},
		"a negative factor":    {func(p *Price) { p.Tier[0].Factor = -1 }, "from 0.0001 to 1000"},
		"five places":          {func(p *Price) { p.Tier[0].Factor = *amount("0.00001") }, "at most four decimal places"},
		"a negative tier":      {func(p *Price) { p.Tier[1].Output = amount("-1") }, "tier priority fast: output is -1.00"},
		"above in a tier":      {func(p *Price) { p.Tier[2].Above[0].Tokens = 2000 }, "tier ultrafast: above 2000: no prompt"},
		"a tier twice":         {func(p *Price) { p.Tier[0].Names = []string{"fast"} }, "tier fast is there twice"},
		"the usual tier":       {func(p *Price) { p.Tier[0].Names = []string{"default"} }, "tier default: the price itself holds for it; give its prices there"},
		"a tier in capitals":   {func(p *Price) { p.Tier[0].Names = []string{"FAST"} }, "lower-case"},
		"a region twice":       {func(p *Price) { p.Geo = append(p.Geo, p.Geo[0]) }, "geo us is there twice"},
		"the usual region":     {func(p *Price) { p.Geo[0].Name = "global" }, "the price itself holds for it"},
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
		addsUp(t, got)
	})
}

func TestChargingAPlainPriceAllocatesNothing(t *testing.T) {
	p := claude()
	var sum money.Amount
	report := usage.Report{Tokens: usage.Tokens{Input: 1200, CacheRead: 500_000, Output: 300}, Tier: "standard"}
	if n := testing.AllocsPerRun(100, func() {
		b, _ := p.Bounds(Ask{BodyBytes: 3000, MaxTokens: 4096, HasMaxTokens: true})
		sum += p.Greatest(b) + p.Charge(b, &report).Amount
	}); n != 0 || sum == 0 {
		t.Errorf("%v allocations for %v", n, sum)
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
