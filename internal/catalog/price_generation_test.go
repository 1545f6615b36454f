package catalog_test

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/money"
)

// units returns n thousandths as a price, so that tests use integers.
func units(n int64) money.Amount { return money.Amount(n) * money.Unit / 1000 }

// rows are prices per second with every kind of row.
var rows = []catalog.Variant{
	{Price: units(10)},
	{Audio: true, Price: units(20)},
	{Resolution: "1080P", Price: units(30)},
	{Resolution: "1080P", Audio: true, Price: units(50)},
	{Resolution: "4K", Price: units(40)},
	{Resolution: "2K", Audio: true, Price: units(60)},
}

func TestARowIsSelectedByResolutionThenSound(t *testing.T) {
	t.Parallel()
	silent, sound := new(false), new(true)
	for name, c := range map[string]struct {
		rows       []catalog.Variant
		resolution string
		audio      *bool
		want       int64 // per second; zero: none
	}{
		"another resolution":                {rows, "720P", silent, 10},
		"another resolution, sound":         {rows, "720P", sound, 20},
		"another resolution, unknown sound": {rows, "720P", nil, 20},
		"its own row":                       {rows, "1080P", silent, 30},
		"its own row in lower case":         {rows, "1080p", silent, 30},
		"its own row, sound":                {rows, "1080P", sound, 50},
		"its own row, unknown sound":        {rows, "1080P", nil, 50},
		"its own row for both":              {rows, "4K", silent, 40},
		"its own row for both, sound":       {rows, "4K", sound, 40},
		"its own row for sound, silent":     {rows, "2K", silent, 10},
		"its own row for sound":             {rows, "2K", sound, 60},
		"unknown resolution, silent":        {rows, "", silent, 40},
		"unknown resolution, sound":         {rows, "", sound, 60},
		"unknown resolution and sound":      {rows, "", nil, 60},
		"no row for the resolution":         {rows[2:4], "720P", silent, 0},
		"no silent row":                     {rows[1:2], "720P", silent, 0},
		"no silent row, unknown resolution": {rows[1:2], "", silent, 20},
		"a free row of the resolution":      {[]catalog.Variant{{Price: units(1)}, {Resolution: "720P"}}, "720P", silent, -1},
	} {
		p := catalog.Price{Model: "a", Second: c.rows}
		got, refusal := p.Quote(catalog.Video, catalog.Work{Duration: catalog.Second, Resolution: c.resolution, Audio: c.audio})
		want := units(max(c.want, 0))
		if c.want == 0 && refusal != catalog.UnpricedResolution || c.want != 0 && (refusal != 0 || got.Hold != want) {
			t.Errorf("%s: %v, refusal %d, want %v", name, got.Hold, refusal, want)
		}
	}
}

func TestTheQuoteOfAGeneration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		price   catalog.Price
		kind    catalog.Kind
		work    catalog.Work
		hold    string
		rule    string
		refusal catalog.Refusal
	}{
		"seconds":                   {catalog.Price{Second: rows}, catalog.Video, catalog.Work{Duration: 8 * catalog.Second, Resolution: "720P", Audio: new(false)}, "0.08", "1 video × 8 s × 0.01 per second", 0},
		"videos":                    {catalog.Price{Second: rows}, catalog.Video, catalog.Work{Count: 3, Duration: 8 * catalog.Second, Resolution: "4K"}, "0.96", "3 videos × 8 s × 0.04 per second (4K)", 0},
		"a part of a second":        {catalog.Price{Second: rows[:1]}, catalog.Video, catalog.Work{Duration: catalog.Second / 2}, "0.005", "1 video × 0.5 s × 0.01 per second", 0},
		"rounded up once":           {catalog.Price{Second: []catalog.Variant{{Price: 1}}}, catalog.Video, catalog.Work{Count: 3, Duration: catalog.Second / 2}, "0.000000002", "3 videos × 0.5 s × 0.000000001 per second", 0},
		"seconds and a request":     {catalog.Price{Second: rows[:1], Request: units(5)}, catalog.Video, catalog.Work{Count: 2, Duration: catalog.Second}, "0.025", "2 videos × 1 s × 0.01 per second + 0.005 per request", 0},
		"a request":                 {catalog.Price{Request: units(5)}, catalog.Video, catalog.Work{Count: 9}, "0.005", "0.005 per request", 0},
		"a request for images":      {catalog.Price{Request: units(5)}, catalog.Image, catalog.Work{Count: 9}, "0.005", "0.005 per request", 0},
		"images":                    {catalog.Price{Image: rows[:1]}, catalog.Image, catalog.Work{Count: 2, Resolution: "1K", Audio: new(false)}, "0.02", "2 images × 0.01 per image", 0},
		"an image":                  {catalog.Price{Image: rows[2:3], Second: rows}, catalog.Image, catalog.Work{Resolution: "1080P"}, "0.03", "1 image × 0.03 per image (1080P)", 0},
		"free seconds":              {catalog.Price{Second: []catalog.Variant{{}}}, catalog.Video, catalog.Work{Duration: catalog.Second}, "0.00", "1 video × 1 s × 0.00 per second", 0},
		"the highest amount":        {catalog.Price{Second: []catalog.Variant{{Price: money.Max}}}, catalog.Video, catalog.Work{Duration: catalog.Second}, "9223372036.854775807", "1 video × 1 s × 9223372036.854775807 per second", 0},
		"no duration":               {catalog.Price{Second: rows}, catalog.Video, catalog.Work{}, "", "", catalog.NoDuration},
		"a negative duration":       {catalog.Price{Second: rows}, catalog.Video, catalog.Work{Duration: -1}, "", "", catalog.NoDuration},
		"seconds for an image":      {catalog.Price{Second: rows}, catalog.Image, catalog.Work{}, "", "", catalog.Unpriced},
		"images for a video":        {catalog.Price{Image: rows}, catalog.Video, catalog.Work{Duration: catalog.Second}, "", "", catalog.Unpriced},
		"tokens":                    {catalog.Price{TokenPrices: catalog.TokenPrices{Input: new(money.Unit), Output: new(money.Unit)}}, catalog.Video, catalog.Work{Duration: catalog.Second}, "", "", catalog.Unpriced},
		"above the highest amount":  {catalog.Price{Second: []catalog.Variant{{Price: money.Max}}}, catalog.Video, catalog.Work{Duration: catalog.Second + 1}, "", "", catalog.TooMuch},
		"above it with the request": {catalog.Price{Second: []catalog.Variant{{Price: money.Max}}, Request: 1}, catalog.Video, catalog.Work{Duration: catalog.Second}, "", "", catalog.TooMuch},
		"a count out of range":      {catalog.Price{Image: []catalog.Variant{{Price: 1}}}, catalog.Image, catalog.Work{Count: math.MaxInt64}, "", "", catalog.TooMuch},
	} {
		got, refusal := c.price.Quote(c.kind, c.work)
		if refusal != c.refusal || refusal == 0 && (got.Hold.String() != c.hold || got.Rule != c.rule) {
			t.Errorf("%s: the hold is %v by %q, refusal %d, want %s by %q, %d", name, got.Hold, got.Rule, refusal, c.hold, c.rule, c.refusal)
		}
		if c.price.ForGenerations(c.kind) != (c.refusal != catalog.Unpriced) {
			t.Errorf("%s: ForGenerations is %v", name, c.price.ForGenerations(c.kind))
		}
	}
}

func TestDeliveredPartsAreCharged(t *testing.T) {
	t.Parallel()
	silent, sound := new(false), new(true)
	price := catalog.Price{Second: rows, Request: units(1)}
	requested := catalog.Work{Count: 2, Duration: 8 * catalog.Second, Resolution: "1080P", Audio: sound}
	quote, refusal := price.Quote(catalog.Video, requested)
	if refusal != 0 || quote.Hold != units(801) {
		t.Fatalf("the hold is %v, refusal %d", quote.Hold, refusal)
	}
	half := catalog.Work{Duration: catalog.Second / 2}
	for name, c := range map[string]struct {
		delivered []catalog.Work
		want      int64
	}{
		"as requested":               {[]catalog.Work{requested}, 801},
		"as requested, two parts":    {[]catalog.Work{{}, {}}, 801},
		"no report":                  {nil, 801},
		"one of two":                 {[]catalog.Work{{}}, 401},
		"one of two, counted":        {[]catalog.Work{{Count: 1}}, 401},
		"shorter":                    {[]catalog.Work{{Count: 2, Duration: 5 * catalog.Second}}, 501},
		"one shorter":                {[]catalog.Work{{}, {Duration: 5 * catalog.Second}}, 651},
		"longer":                     {[]catalog.Work{{Count: 2, Duration: 9 * catalog.Second}}, 801},
		"more":                       {[]catalog.Work{{}, {}, {}}, 801},
		"smaller":                    {[]catalog.Work{{Count: 2, Resolution: "720p"}}, 321},
		"silent":                     {[]catalog.Work{{Count: 2, Audio: silent}}, 481},
		"one silent":                 {[]catalog.Work{{Audio: silent}, {}}, 641},
		"smaller and silent":         {[]catalog.Work{{Count: 2, Resolution: "540P", Audio: silent}}, 161},
		"more expensive":             {[]catalog.Work{{Count: 2, Resolution: "2K"}}, 801},
		"one of two, more expensive": {[]catalog.Work{{Resolution: "2K"}}, 481},
		"negative":                   {[]catalog.Work{{Count: -1, Duration: -5}}, 401},
		"out of range":               {[]catalog.Work{{Count: math.MaxInt64, Duration: math.MaxInt64}}, 801},
		"a sum out of range":         {[]catalog.Work{{Duration: math.MaxInt64}, {Duration: math.MaxInt64}}, 801},
		"halves of a second":         {[]catalog.Work{half, half}, 51},
	} {
		if got := quote.Cost(c.delivered...); got != units(c.want) {
			t.Errorf("%s costs %v, want %v", name, got, units(c.want))
		}
	}
	// The sum of the parts is rounded up, not each part.
	tiny := catalog.Price{Second: []catalog.Variant{{Price: 1}}}
	if quote, refusal = tiny.Quote(catalog.Video, catalog.Work{Count: 4, Duration: catalog.Second}); refusal != 0 || quote.Cost(half, half, half, half) != 2 {
		t.Errorf("four halves of a nano-unit cost %v", quote.Cost(half, half, half, half))
	}
	// Unreported sound counts as requested.
	if quote, refusal = price.Quote(catalog.Video, catalog.Work{Count: 2, Duration: catalog.Second, Resolution: "720P", Audio: silent}); refusal != 0 || quote.Cost(catalog.Work{Count: 1}) != units(11) {
		t.Errorf("one of two silent videos costs %v", quote.Cost(catalog.Work{Count: 1}))
	}
	// A resolution without a price is charged as the requested one.
	only := catalog.Price{Second: rows[2:4]}
	if quote, refusal = only.Quote(catalog.Video, requested); refusal != 0 || quote.Cost(catalog.Work{Resolution: "720P", Count: 1}) != units(400) {
		t.Errorf("an unpriced resolution costs %v", quote.Cost(catalog.Work{Resolution: "720P", Count: 1}))
	}
}

func TestQuotesRoundTripAsJSON(t *testing.T) {
	t.Parallel()
	price := catalog.Price{Second: rows, Request: units(1)}
	want, _ := price.Quote(catalog.Video, catalog.Work{Count: 2, Duration: 5_500_000, Resolution: "1080P", Audio: new(true)})
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got catalog.Quote
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s was decoded as %+v, %v", text, got, err)
	}
}

// TestNoDeliveryCostsMoreThanTheHold uses random prices, requests and results.
func TestNoDeliveryCostsMoreThanTheHold(t *testing.T) {
	t.Parallel()
	resolution := rapid.SampledFrom([]string{"", "720P", "1080p", "4K"})
	audio := rapid.SampledFrom([]*bool{nil, new(true), new(false)})
	count := rapid.OneOf(rapid.Int64Range(-1, 9), rapid.Int64())
	duration := rapid.OneOf(rapid.Int64Range(0, int64(catalog.MaxSeconds)), rapid.Int64())
	works := rapid.Custom(func(t *rapid.T) catalog.Work {
		return catalog.Work{
			Count: count.Draw(t, "count"), Duration: catalog.Seconds(duration.Draw(t, "duration")),
			Resolution: resolution.Draw(t, "resolution"), Audio: audio.Draw(t, "audio"),
		}
	})
	variants := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) catalog.Variant {
		return catalog.Variant{Resolution: resolution.Draw(t, "resolution"), Audio: rapid.Bool().Draw(t, "sound"), Price: money.Amount(rapid.Int64Min(0).Draw(t, "price"))}
	}), 0, 6)
	rapid.Check(t, func(t *rapid.T) {
		p := catalog.Price{Model: "a", Request: money.Amount(rapid.Int64Min(0).Draw(t, "request"))}
		kind := rapid.SampledFrom([]catalog.Kind{catalog.Video, catalog.Image}).Draw(t, "kind")
		if p.Second = variants.Draw(t, "rows"); kind == catalog.Image {
			p.Image, p.Second = p.Second, nil
			for i := range p.Image {
				p.Image[i].Audio = false
			}
		}
		if p.Validate() != nil {
			return
		}
		quote, refusal := p.Quote(kind, works.Draw(t, "requested"))
		if refusal != 0 {
			return
		}
		if got := quote.Cost(rapid.SliceOfN(works, 0, 4).Draw(t, "delivered")...); got < 0 || got > quote.Hold || quote.Hold < 0 {
			t.Fatalf("the cost is %v, but the hold %v", got, quote.Hold)
		}
		if got := quote.Cost(quote.Asked); got != quote.Hold {
			t.Fatalf("the requested work costs %v, but the hold is %v by %s", got, quote.Hold, quote.Rule)
		}
	})
}
