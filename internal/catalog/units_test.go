package catalog

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestTheImagePriceThatApplies(t *testing.T) {
	t.Parallel()
	p := &Price{Model: "m", Image: []Variant{
		{Price: 1}, {Resolution: "HD", Price: 5}, {Resolution: "1024x1792", Price: 3}, {Resolution: "1024x1792/hd", Price: 9}, {Resolution: "512x512", Price: 6},
	}}
	for _, c := range []struct {
		size, quality string
		charged, most money.Amount
	}{
		{"", "", 1, 9}, {"auto", "auto", 9, 9}, {"auto", "", 6, 9}, {"", "hd", 5, 9}, {"256x256", "", 1, 5}, {"256x256", "hd", 5, 5},
		{"1024X1792", "hd", 9, 9}, {"1024x1792", "low", 3, 3}, {"512x512", "hd", 6, 6},
		{"1024*1792", "low", 6, 6}, {"01024x1792", "", 6, 9}, {"hd", "", 5, 5},
	} {
		u := Units{Unit: ImageUnit, Count: 2, Size: c.size, Quality: c.quality}
		b, f := p.Bounds(CallSpec{Units: u})
		if f != nil || p.HighestCost(b) != 2*c.most {
			t.Errorf("%q %q reserves %v, want %v (%v)", c.size, c.quality, p.HighestCost(b), 2*c.most, f)
		}
		if got := p.Charge(b, &usage.Report{Images: 2}); got.Amount != 2*c.charged || got.Units != 2 || got.Cut {
			t.Errorf("%q %q costs %+v, want %v", c.size, c.quality, got, 2*c.charged)
		}
		if got := p.Charge(b, &usage.Report{Images: 5}); got.Amount != 2*c.charged || !got.Cut {
			t.Errorf("five images instead of two cost %v", got.Amount)
		}
	}
	sized := &Price{Model: "m", Image: []Variant{{Resolution: "512x512", Price: 6}}}
	if _, f := sized.Bounds(CallSpec{Units: Units{Unit: ImageUnit, Count: 1, Size: "1x1"}}); f == nil || f.Param != "size" {
		t.Errorf("a size without a price: %v", f)
	}
}

func TestSecondsAreReservedByTheFileAndChargedByTheReport(t *testing.T) {
	t.Parallel()
	p := &Price{Model: "m", Request: 7, Per: []UnitPrice{{Unit: SecondUnit, Price: 10, Max: 100}}}
	for _, c := range []struct {
		units             Units
		reported          int64
		reserved, charged money.Amount
		cut               bool
	}{
		{Units{Count: 40, Estimate: 8}, 12, 407, 127, false},
		{Units{Count: 40, Estimate: 8}, 0, 407, 87, false},
		{Units{Count: 40, Estimate: 8}, 60, 407, 607, false}, // more than the bytes show
		{Units{Count: 400, Estimate: 80}, 900, 1007, 1007, true},
		{Units{Count: 40, Estimate: 40, Exact: true}, 0, 407, 407, false},
		{Units{Count: 40, Estimate: 40, Exact: true}, 39, 407, 397, false},
		{Units{Count: 40, Estimate: 40, Exact: true}, 99, 407, 997, false}, // more than the header of the file shows
	} {
		c.units.Unit = SecondUnit
		b, f := p.Bounds(CallSpec{Units: c.units})
		got := p.Charge(b, &usage.Report{Seconds: c.reported})
		if f != nil || p.HighestCost(b) != c.reserved || got.Amount != c.charged || got.Cut != c.cut {
			t.Errorf("%+v with %d reported: reserved %v, charged %v, cut %v; want %+v (%v)", c.units, c.reported, p.HighestCost(b), got.Amount, got.Cut, c, f)
		}
		breakdown, err := ReadBreakdown(got.Breakdown(), got.Tokens)
		if err != nil || breakdown.Total != got.Amount {
			t.Errorf("the breakdown is %+v, %v", breakdown, err)
		}
	}
}
