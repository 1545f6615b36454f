package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/money"
)

// amount parses an amount. It panics if the text is invalid.
func amount(text string) *money.Amount {
	a, err := money.Parse(text)
	if err != nil {
		panic(err)
	}
	return &a
}

// claude returns a price with common options.
func claude() Price {
	return Price{
		Model: "claude-*", TokenPrices: TokenPrices{Input: amount("3"), Output: amount("15"), CacheRead: amount("0.30"), CacheWrite: amount("3.75")},
		Context: 200_000, MaxOutput: 64_000,
	}
}

func TestAPriceWithoutLimitsIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Price)
		want   string
	}{
		"no pattern":    {func(p *Price) { p.Model = "" }, "1 to 256 characters"},
		"a bad pattern": {func(p *Price) { p.Model = "*a" }, `"*" is allowed only at the end`},
		"no context":    {func(p *Price) { p.Context = 0 }, "price claude-*: a price per token needs context and max_output"},
		"no max_output": {func(p *Price) { p.MaxOutput = 0 }, "needs context and max_output"},
		"only reasoning costs": {func(p *Price) {
			*p = Price{Model: "a", TokenPrices: TokenPrices{Input: amount("0"), Output: amount("0"), Reasoning: amount("1")}}
		}, "needs context and max_output"},
		"a negative context": {func(p *Price) { p.Context = -1 }, "from 1 to 1000000000 tokens"},
		"a high max_output":  {func(p *Price) { p.MaxOutput = MaxTokens + 1 }, "from 1 to 1000000000 tokens"},
		"no input":           {func(p *Price) { p.Input = nil }, "names input and output"},
		"no output":          {func(p *Price) { p.Output = nil }, "names input and output"},
		"a cache without input": {func(p *Price) {
			*p = Price{Model: "a", TokenPrices: TokenPrices{CacheRead: amount("1")}, Context: 1, MaxOutput: 1}
		}, "names input and output"},
		"a negative input":               {func(p *Price) { p.Input = amount("-1") }, "input is -1.00 and must not be negative"},
		"a negative cache":               {func(p *Price) { p.CacheWrite1h = amount("-0.5") }, "cache_write_1h is -0.50"},
		"a negative request":             {func(p *Price) { p.Request = -1 }, "request is -0.000000001"},
		"no prices":                      {func(p *Price) { *p = Price{Model: "a", Context: 1, MaxOutput: 1} }, "names no price"},
		"too expensive input":            {func(p *Price) { p.Input, p.Context = amount("9223372036"), 2_000_000 }, "more than 9223372036.854775807"},
		"too expensive with the request": {func(p *Price) { p.Request = money.Max }, "more than 9223372036.854775807"},
		"a negative image":               {func(p *Price) { p.Image = []Variant{{Price: -1}} }, "image: -0.000000001 must not be negative"},
		"an image with sound":            {func(p *Price) { p.Image = []Variant{{Audio: true, Price: 1}} }, "an image has no audio"},
		"an invalid resolution":          {func(p *Price) { p.Second = []Variant{{Resolution: "very large", Price: 1}} }, `"very large" is not a resolution`},
		"two amounts":                    {func(p *Price) { p.Image = []Variant{{Resolution: "0.02", Price: 1}} }, `"0.02" is not a resolution`},
		"a resolution named audio":       {func(p *Price) { p.Second = []Variant{{Resolution: "Audio", Price: 1}} }, "is not a resolution"},
		"a long resolution":              {func(p *Price) { p.Second = []Variant{{Resolution: strings.Repeat("1", 33), Price: 1}} }, "is not a resolution"},
		"two for all resolutions":        {func(p *Price) { p.Image = []Variant{{Price: 1}, {Price: 2}} }, "image: 0.000000002 is given twice"},
		"two for one resolution": {
			func(p *Price) {
				p.Second = []Variant{{Resolution: "1080P", Price: 1}, {Resolution: "1080p", Price: money.Unit}}
			}, "second: 1080p 1.00 is given twice",
		},
	} {
		p := claude()
		c.change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
	}
}

func TestValidPricesAreAccepted(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]Price{
		"tokens":             claude(),
		"requests":           {Model: "a", Request: 1},
		"free tokens":        {Model: "a", TokenPrices: TokenPrices{Input: amount("0"), Output: amount("0")}},
		"free input":         {Model: "a", TokenPrices: TokenPrices{Input: amount("0"), Output: amount("1")}, Context: 1, MaxOutput: 1},
		"images":             {Model: "a", Image: []Variant{{Price: 0}, {Resolution: "1K", Price: 1}, {Resolution: "2K", Price: 1}}},
		"seconds":            {Model: "a", Second: []Variant{{Price: 1}, {Audio: true, Price: 2}, {Resolution: "1080P", Audio: true, Price: 3}}},
		"the highest limits": {Model: "a", TokenPrices: TokenPrices{Input: amount("1000000"), Output: amount("1000000")}, Context: MaxTokens, MaxOutput: MaxTokens},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPricesRoundTripAsJSON(t *testing.T) {
	t.Parallel()
	want := claude()
	want.Second = []Variant{{Resolution: "1080P", Audio: true, Price: 200_000_000}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	const wantJSON = `{"model":"claude-*","input":"3.00","output":"15.00","cache_read":"0.30","cache_write":"3.75",` +
		`"context":200000,"max_output":64000,"second":[{"resolution":"1080P","audio":true,"price":"0.20"}]}`
	if string(text) != wantJSON {
		t.Errorf("the JSON is\n%s, want\n%s", text, wantJSON)
	}
	var got Price
	if err := json.Unmarshal(text, &got); err != nil || *got.CacheWrite != *want.CacheWrite || got.CacheWrite1h != nil || got.Second[0] != want.Second[0] {
		t.Errorf("the decoded price is %+v, %v", got, err)
	}
}
