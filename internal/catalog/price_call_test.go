package catalog

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestHighestCostIsTheCostOfTheBounds(t *testing.T) {
	t.Parallel()
	thinking := claude()
	thinking.Reasoning = amount("20")
	hourly := claude()
	hourly.CacheWrite1h = amount("6")
	perCall := Price{Model: "a", Request: 5}
	for name, c := range map[string]struct {
		price   Price
		spec    CallSpec
		bounds  Bounds
		highest string
	}{
		"a short body":        {claude(), CallSpec{BodyBytes: 3000, MaxTokens: 100, HasMaxTokens: true}, Bounds{Reserve: 1000, Input: 200_000, Output: 100}, "0.00525"},
		"a part of a token":   {claude(), CallSpec{BodyBytes: 1, MaxTokens: 1, HasMaxTokens: true}, Bounds{Reserve: 1, Input: 200_000, Output: 1}, "0.00001875"},
		"a body over context": {claude(), CallSpec{BodyBytes: 32 << 20, MaxTokens: 1, HasMaxTokens: true}, Bounds{Reserve: 11_184_811, Input: 11_184_811, Output: 1}, "41.94305625"},
		"tokens over context": {claude(), CallSpec{BodyBytes: 3, PromptTokens: 300_000, MaxTokens: 1, HasMaxTokens: true}, Bounds{Reserve: 300_001, Input: 300_001, Output: 1}, "1.12501875"},
		"media over context":  {claude(), CallSpec{BodyBytes: 3000, InlineInput: 1 << 30, MaxTokens: 1, HasMaxTokens: true}, Bounds{Reserve: 200_000, Input: 200_000, Output: 1}, "0.750015"},
		"media and text":      {claude(), CallSpec{BodyBytes: 900_000, InlineInput: 1 << 30, MaxTokens: 1, HasMaxTokens: true}, Bounds{Reserve: 300_000, Input: 300_000, Output: 1}, "1.125015"},
		"a link and text":     {claude(), CallSpec{BodyBytes: 900_000, FullContext: true, MaxTokens: 1, HasMaxTokens: true}, Bounds{Reserve: 300_000, Input: 300_000, Output: 1}, "1.125015"},
		"context per prompt":  {claude(), CallSpec{BodyBytes: 32 << 20, Prompts: 3, MaxTokens: 1, HasMaxTokens: true}, Bounds{Reserve: 11_184_811, Input: 11_184_811, Output: 3}, "41.94308625"},
		"a link per prompt":   {claude(), CallSpec{FullContext: true, Prompts: 3, MaxTokens: 1, HasMaxTokens: true}, Bounds{Reserve: 600_000, Input: 600_000, Output: 3}, "2.250045"},
		"no max_tokens":       {claude(), CallSpec{}, Bounds{Reserve: 0, Input: 200_000, Output: 64_000}, "0.96"},
		"max_tokens over max": {claude(), CallSpec{MaxTokens: math.MaxInt64, HasMaxTokens: true}, Bounds{Reserve: 0, Input: 200_000, Output: 64_000}, "0.96"},
		"max_tokens of zero":  {claude(), CallSpec{HasMaxTokens: true, Choices: 4}, Bounds{Reserve: 0, Input: 200_000, Output: 0}, "0"},
		"choices":             {claude(), CallSpec{Choices: 4, MaxTokens: 10, HasMaxTokens: true}, Bounds{Reserve: 0, Input: 200_000, Output: 40}, "0.0006"},
		"choices of prompts":  {claude(), CallSpec{Choices: 4, Prompts: 5, MaxTokens: 10, HasMaxTokens: true}, Bounds{Reserve: 0, Input: 1_000_000, Output: 200}, "0.003"},
		"expensive reasoning": {thinking, CallSpec{MaxTokens: 10, HasMaxTokens: true}, Bounds{Reserve: 0, Input: 200_000, Output: 10}, "0.0002"},
		"an expensive cache":  {hourly, CallSpec{BodyBytes: 3000, HasMaxTokens: true}, Bounds{Reserve: 1000, Input: 200_000, Output: 0}, "0.006"},
		"a price per request": {perCall, CallSpec{BodyBytes: 3000, Choices: math.MaxInt64}, Bounds{Reserve: 1000, Input: math.MaxInt64, Output: math.MaxInt64}, "0.000000005"},
	} {
		got, refused := c.price.Bounds(c.spec)
		sizes := got
		sizes.text, sizes.pass, sizes.reserved, sizes.maxCharge, sizes.options = 0, 0, 0, 0, nil
		if refused != nil || sizes != c.bounds {
			t.Errorf("%s: the bounds are %+v, %v, want %+v", name, sizes, refused, c.bounds)
		} else if sum := c.price.HighestCost(got); sum != *amount(c.highest) {
			t.Errorf("%s costs at most %v, want %s", name, sum, c.highest)
		}
	}
}

func TestAmountsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec CallSpec
		want string
	}{
		{CallSpec{Choices: math.MaxInt64, MaxTokens: 2, HasMaxTokens: true}, "n"},
		{CallSpec{Choices: 10_000_000_000}, "n"},
		{CallSpec{Choices: math.MaxInt64, Prompts: 2}, "n"},
		{CallSpec{Prompts: math.MaxInt64}, "prompt"},
		{CallSpec{Prompts: 100_000_000_000, HasMaxTokens: true}, "prompt"},
	} {
		p := claude()
		_, refused := p.Bounds(c.spec)
		if refused == nil || refused.Code != fault.InvalidParameter || refused.Param != c.want || !strings.Contains(refused.Message, "is out of range") {
			t.Errorf("%+v: the error is %v, want %s", c.spec, refused, c.want)
		}
	}
}

func TestTheCostIsTheSumOfAllKinds(t *testing.T) {
	t.Parallel()
	own := claude()
	own.CacheWrite1h, own.Reasoning, own.Request = amount("6"), amount("20"), 7
	plain := Price{Model: "a", TokenPrices: TokenPrices{Input: amount("3"), Output: amount("15")}, Context: 1, MaxOutput: 1}
	const m = money.Million
	for name, c := range map[string]struct {
		price  Price
		tokens usage.Tokens
		want   string
	}{
		"input":                      {claude(), usage.Tokens{Input: m}, "3"},
		"output":                     {claude(), usage.Tokens{Output: m}, "15"},
		"read from a cache":          {claude(), usage.Tokens{CacheRead: m}, "0.30"},
		"written for five minutes":   {claude(), usage.Tokens{CacheWrite5m: m}, "3.75"},
		"for an hour, by default":    {claude(), usage.Tokens{CacheWrite1h: m}, "3.75"},
		"for an hour":                {own, usage.Tokens{CacheWrite1h: m}, "6.000000007"},
		"reasoning as output":        {claude(), usage.Tokens{Reasoning: m}, "15"},
		"reasoning":                  {own, usage.Tokens{Reasoning: m}, "20.000000007"},
		"caches as input":            {plain, usage.Tokens{CacheRead: m, CacheWrite5m: m, CacheWrite1h: m}, "9"},
		"only the request":           {own, usage.Tokens{}, "0.000000007"},
		"all kinds":                  {claude(), usage.Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite5m: 4, CacheWrite1h: 5, Reasoning: 6}, "0.00015765"},
		"rounded up once":            {Price{TokenPrices: TokenPrices{Input: amount("0.000000001"), Output: amount("0.000000001")}}, usage.Tokens{Input: 1, Output: 1}, "0.000000001"},
		"beyond the range":           {claude(), usage.Tokens{Input: math.MaxInt64}, "9223372036.854775807"},
		"beyond it with the request": {Price{Request: money.Max, TokenPrices: TokenPrices{Input: amount("1")}}, usage.Tokens{Input: 1}, "9223372036.854775807"},
		"free tokens":                {Price{TokenPrices: TokenPrices{Input: amount("0"), Output: amount("0")}}, usage.Tokens{Input: m, Output: m}, "0"},
	} {
		if got := c.price.Cost(c.tokens); got != *amount(c.want) {
			t.Errorf("%s costs %v, want %s", name, got, c.want)
		}
	}
}

func TestACutRemovesTheMostExpensiveKinds(t *testing.T) {
	t.Parallel()
	expensive := claude() // prices: read 0.30, input 3, written 3.75 and 6; output 15, reasoning 20
	expensive.CacheWrite1h, expensive.Reasoning = amount("6"), amount("20")
	b := Bounds{Input: 10, Output: 5}
	for name, c := range map[string]struct{ tokens, want usage.Tokens }{
		"within":            {usage.Tokens{Input: 4, CacheRead: 3, CacheWrite5m: 2, CacheWrite1h: 1, Output: 3, Reasoning: 2}, usage.Tokens{Input: 4, CacheRead: 3, CacheWrite5m: 2, CacheWrite1h: 1, Output: 3, Reasoning: 2}},
		"cache for an hour": {usage.Tokens{Input: 4, CacheRead: 4, CacheWrite5m: 2, CacheWrite1h: 1}, usage.Tokens{Input: 4, CacheRead: 4, CacheWrite5m: 2}},
		"cache writes":      {usage.Tokens{Input: 4, CacheRead: 5, CacheWrite5m: 2, CacheWrite1h: 1}, usage.Tokens{Input: 4, CacheRead: 5, CacheWrite5m: 1}},
		"input":             {usage.Tokens{Input: 4, CacheRead: 8, CacheWrite5m: 2, CacheWrite1h: 1}, usage.Tokens{Input: 2, CacheRead: 8}},
		"cache reads":       {usage.Tokens{Input: 4, CacheRead: 80}, usage.Tokens{CacheRead: 10}},
		"reasoning":         {usage.Tokens{Output: 4, Reasoning: 9}, usage.Tokens{Output: 4, Reasoning: 1}},
		"output":            {usage.Tokens{Output: 1 << 53, Reasoning: 1 << 53}, usage.Tokens{Output: 5}},
		"without overflow":  {usage.Tokens{Input: math.MaxInt64, CacheRead: math.MaxInt64}, usage.Tokens{CacheRead: 10}},
	} {
		got, cut := expensive.Cut(b, c.tokens)
		if got != c.want || cut != (c.tokens != c.want) {
			t.Errorf("%s: %+v was cut to %+v, %v, want %+v", name, c.tokens, got, cut, c.want)
		}
	}
}

func TestFitsReturnsTheHighestMaxTokens(t *testing.T) {
	t.Parallel()
	p := claude()
	spec := CallSpec{BodyBytes: 3000, Choices: 2} // 0.00375 for the input, 0.00003 for each token of both choices
	for available, want := range map[string]int64{
		"0": 0, "0.00375": 0, "0.003779999": 0, "0.00378": 1, "0.004": 8, "1.92374": 63_999, "1.92375": 64_000, "9000000000": 64_000, "-1": 0,
	} {
		if got := p.Fits(spec, *amount(available)); got != want {
			t.Errorf("with %s, Fits returns %d, want %d", available, got, want)
		}
	}
	if got := p.Fits(CallSpec{Choices: math.MaxInt64}, money.Max); got != 0 {
		t.Errorf("%d tokens fit an amount out of range", got)
	}
}

// prices returns a generator of valid prices.
func prices() *rapid.Generator[Price] {
	return rapid.Custom(func(t *rapid.T) Price {
		amounts := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, int64(1_000_000*money.Unit)))
		optional := func(name string) *money.Amount {
			if !rapid.Bool().Draw(t, "has "+name) {
				return nil
			}
			a := money.Amount(amounts.Draw(t, name))
			return &a
		}
		input, output := money.Amount(amounts.Draw(t, "input")), money.Amount(amounts.Draw(t, "output"))
		p := Price{
			Model: "m", TokenPrices: TokenPrices{Input: &input, Output: &output, CacheRead: optional("cache_read"), CacheWrite: optional("cache_write"),
				CacheWrite1h: optional("cache_write_1h"), Reasoning: optional("reasoning"),
				AudioInput: optional("audio_input"), AudioOutput: optional("audio_output"), ImageInput: optional("image_input"), ImageOutput: optional("image_output"),
			}, Request: money.Amount(amounts.Draw(t, "request")),
			Context: rapid.Int64Range(1, 2_000_000).Draw(t, "context"), MaxOutput: rapid.Int64Range(1, 200_000).Draw(t, "max_output"),
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		return p
	})
}

func specs() *rapid.Generator[CallSpec] {
	return rapid.Custom(func(t *rapid.T) CallSpec {
		return CallSpec{
			BodyBytes: rapid.Int64Range(0, 32<<20).Draw(t, "body"), Prompts: rapid.Int64Range(1, 5).Draw(t, "prompts"),
			Choices: rapid.Int64Range(1, 5).Draw(t, "choices"), MaxTokens: rapid.Int64Range(0, 300_000).Draw(t, "max_tokens"),
			HasMaxTokens: rapid.Bool().Draw(t, "has max_tokens"),
		}
	})
}

func tokens(highest int64) *rapid.Generator[usage.Tokens] {
	return rapid.Custom(func(t *rapid.T) usage.Tokens {
		n := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, highest))
		return usage.Tokens{
			Input: n.Draw(t, "input"), Output: n.Draw(t, "output"), CacheRead: n.Draw(t, "read"),
			CacheWrite5m: n.Draw(t, "written"), CacheWrite1h: n.Draw(t, "written 1h"), Reasoning: n.Draw(t, "reasoning"),
			AudioInput: n.Draw(t, "audio in"), AudioOutput: n.Draw(t, "audio out"), ImageInput: n.Draw(t, "image in"), ImageOutput: n.Draw(t, "image out"),
		}
	})
}

func TestTheChargeIsWithinTheReservation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := prices().Draw(t, "price")
		b, refused := p.Bounds(specs().Draw(t, "call"))
		if refused != nil {
			t.Fatal(refused)
		}
		reported := tokens(1<<53).Draw(t, "tokens")
		kept, cut := p.Cut(b, reported)
		if kept.AllInput() > b.Input || kept.AllOutput() > b.Output {
			t.Fatalf("%+v was cut to %+v, beyond %+v", reported, kept, b)
		}
		if cut != (reported.AllInput() > b.Input || reported.AllOutput() > b.Output) {
			t.Fatalf("%+v was cut to %+v: %v", reported, kept, cut)
		}
		if again, changed := p.Cut(b, kept); changed || again != kept {
			t.Fatalf("%+v was cut again to %+v", kept, again)
		}
		b.Input = b.Reserve // with more input, more is reserved
		reported.AudioInput, reported.AudioOutput, reported.ImageInput, reported.ImageOutput = 0, 0, 0, 0
		kept, _ = p.Cut(b, reported)
		if cost, highest := p.Cost(kept), p.HighestCost(b); cost > highest {
			t.Fatalf("%+v cost %v, but %v is reserved", kept, cost, highest)
		}
	})
}

func TestACutKeepsTheCheapestKinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := prices().Draw(t, "price")
		reported := tokens(6).Draw(t, "tokens")
		b := Bounds{Input: rapid.Int64Range(0, 20).Draw(t, "input limit"), Output: rapid.Int64Range(0, 12).Draw(t, "output limit")}
		kept, _ := p.Cut(b, reported)
		// Replacing a token by a removed token of another kind does not reduce the cost.
		all := func(u *usage.Tokens) [usage.Kinds]*int64 {
			return [usage.Kinds]*int64{
				&u.Input, &u.CacheRead, &u.CacheWrite5m, &u.CacheWrite1h, &u.AudioInput, &u.ImageInput,
				&u.Output, &u.Reasoning, &u.AudioOutput, &u.ImageOutput,
			}
		}
		input := func(i int) bool { return i < 6 }
		for from := range usage.Kinds {
			for to := range usage.Kinds {
				other := kept
				if input(from) != input(to) || *all(&other)[from] == 0 || *all(&other)[to] == *all(&reported)[to] {
					continue
				}
				*all(&other)[from]--
				*all(&other)[to]++
				if p.Cost(other) < p.Cost(kept) {
					t.Fatalf("%+v was cut to %+v, but %+v is cheaper", reported, kept, other)
				}
			}
		}
	})
}

func TestMoreTokensAreNeverCheaper(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := prices().Draw(t, "price")
		less, more := tokens(1<<30).Draw(t, "tokens"), tokens(1<<30).Draw(t, "tokens added")
		more = more.Plus(less)
		if p.Cost(more) < p.Cost(less) {
			t.Fatalf("%+v cost %v, but %+v cost %v", less, p.Cost(less), more, p.Cost(more))
		}
		spec := specs().Draw(t, "call")
		spec.HasMaxTokens = true
		wider := spec
		wider.BodyBytes += rapid.Int64Range(0, 1<<20).Draw(t, "body added")
		wider.MaxTokens += rapid.Int64Range(0, 1<<20).Draw(t, "max_tokens added")
		wider.Choices += rapid.Int64Range(0, 3).Draw(t, "choices added")
		b, _ := p.Bounds(spec)
		c, _ := p.Bounds(wider)
		if p.HighestCost(c) < p.HighestCost(b) {
			t.Fatalf("%+v costs at most %v, but %+v at most %v", spec, p.HighestCost(b), wider, p.HighestCost(c))
		}
	})
}

func TestTheCostIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, u := prices().Draw(t, "price"), tokens(1<<40).Draw(t, "tokens")
		or := func(own, parent *money.Amount) *money.Amount {
			if own != nil {
				return own
			}
			return parent
		}
		exact := new(big.Int)
		for _, kind := range []struct {
			count int64
			price *money.Amount
		}{
			{u.Input, p.Input},
			{u.CacheRead, or(p.CacheRead, p.Input)},
			{u.CacheWrite5m, or(p.CacheWrite, p.Input)},
			{u.CacheWrite1h, or(p.CacheWrite1h, or(p.CacheWrite, p.Input))},
			{u.Output, p.Output},
			{u.Reasoning, or(p.Reasoning, p.Output)},
			{u.AudioInput, or(p.AudioInput, p.Input)},
			{u.AudioOutput, or(p.AudioOutput, p.Output)},
			{u.ImageInput, or(p.ImageInput, p.Input)},
			{u.ImageOutput, or(p.ImageOutput, p.Output)},
		} {
			exact.Add(exact, new(big.Int).Mul(big.NewInt(kind.count), big.NewInt(int64(*kind.price))))
		}
		exact.Add(exact, big.NewInt(money.Million-1)).Div(exact, big.NewInt(money.Million)).Add(exact, big.NewInt(int64(p.Request)))
		want := money.Max
		if exact.IsInt64() {
			want = money.Amount(exact.Int64())
		}
		if got := p.Cost(u); got != want {
			t.Fatalf("%+v cost %d, want %d", u, got, want)
		}
	})
}

func TestPricingACallAllocatesNothing(t *testing.T) {
	p := claude()
	var sum money.Amount
	if n := testing.AllocsPerRun(100, func() { sum += priced(&p) }); n != 0 || sum == 0 {
		t.Errorf("%v allocations for %v", n, sum)
	}
}

func priced(p *Price) money.Amount {
	b, _ := p.Bounds(CallSpec{BodyBytes: 3000, MaxTokens: 4096, HasMaxTokens: true})
	kept, _ := p.Cut(b, usage.Tokens{Input: 1200, CacheRead: 500_000, Output: 300})
	return p.HighestCost(b) + p.Cost(kept)
}

func BenchmarkPricingACall(b *testing.B) {
	p := claude()
	for b.Loop() {
		priced(&p)
	}
}

func TestCostsUnseen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec CallSpec
		want bool
	}{
		"text":            {CallSpec{MaxTokens: 100, HasMaxTokens: true}, false},
		"a link to read":  {CallSpec{FullContext: true}, true},
		"images as input": {CallSpec{Image: true, InlineInput: 100}, true},
		"a tool":          {CallSpec{Tools: []ServerTool{{Param: "tools[0].type", Name: "web_search"}}}, true},
		"a priced model":  {CallSpec{Models: []NamedModel{{Param: "tools[0].model", Price: new(Price)}}}, true},
		"a free model":    {CallSpec{Models: []NamedModel{{Param: "moderation.model"}}}, false},
		"a compaction":    {CallSpec{Compaction: true}, true},
		"reasoning":       {CallSpec{Thinking: true}, true},
		"audio":           {CallSpec{Audio: true}, true},
		"an image":        {CallSpec{ImageOut: true}, true},
	} {
		if got := c.spec.CostsUnseen(); got != c.want {
			t.Errorf("%s: CostsUnseen is %v", name, got)
		}
	}
}
