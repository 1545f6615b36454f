package catalog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// Unit is what a call may be charged by in addition to its tokens.
type Unit string

// The units of calls, by the word after `per`. A price of images is a [Variant].
const (
	NoUnit        Unit = ""
	AnyUnit       Unit = "any" // for [Price.ForCalls]
	ImageUnit     Unit = "image"
	CharacterUnit Unit = "character" // of a text to speak
	SecondUnit    Unit = "second"    // of a recording
	SearchUnit    Unit = "search"    // of a rerank call, each at the price of a request
)

// UnitPrice is the price of one character of a text to speak, or of one second of a recording.
type UnitPrice struct {
	Unit  Unit         `json:"unit"` // character or second
	Price money.Amount `json:"price"`

	// The length of the longest recording that the model takes, in seconds: 1 to 86400. No
	// call is charged more seconds. Default: 14400.
	Max int64 `json:"max,omitempty"`
}

// The lengths of the longest recording, in seconds.
const (
	DefaultRecording = 4 * 60 * 60
	MaxRecording     = 24 * 60 * 60
)

// UnitPrefix begins the name of a unit among the [ToolCharge]s of a breakdown.
const UnitPrefix = "per "

// Units are the units that a call asks for. The zero Units belong to a call that has none.
type Units struct {
	Unit Unit

	// Count is the number of images that the call asks for, of characters in its text, of
	// seconds that its recording can have, or of search units that it can cost.
	Count int64

	// Exact is set if Count is exact. It is never set for images.
	Exact bool

	// Estimate is the number of seconds or search units to charge if the backend reports none.
	Estimate int64

	// Size and Quality are those of the images, as requested. Empty: the default of the vendor.
	// auto: the vendor chooses.
	Size, Quality string
}

// automatic is the value of a size or a quality that the vendor chooses.
const automatic = "auto"

// ForCalls reports whether p is a price of model calls that are measured in unit. A price of tokens
// or of requests is a price of all calls.
func (p *Price) ForCalls(unit Unit) bool {
	return p.Input != nil || p.Output != nil || p.Request > 0 || p.PricesUnit(unit)
}

// ByUnits reports whether a call that is measured in unit is charged without its tokens.
func (p *Price) ByUnits(unit Unit) bool {
	return unit != NoUnit && p.Input == nil && p.Output == nil
}

// ChargesTokens reports whether a token of some kind is not free.
func (p *Price) ChargesTokens() bool {
	r := p.rates()
	return p.hasRules() || slices.Max(r[:]) > 0
}

// PricesUnit reports whether p has a price for unit.
func (p *Price) PricesUnit(unit Unit) bool {
	switch unit {
	case NoUnit:
		return false
	case AnyUnit:
		return len(p.Per) > 0 || len(p.Image) > 0
	case ImageUnit:
		return len(p.Image) > 0
	}
	return p.per(unit) != nil
}

func (p *Price) per(unit Unit) *UnitPrice {
	return first(p.Per, func(u *UnitPrice) bool { return u.Unit == unit })
}

func (p *Price) validateUnits() error {
	for i, u := range p.Per {
		switch {
		case u.Unit != CharacterUnit && u.Unit != SecondUnit:
			return fmt.Errorf("per %s: the unit is not supported; allowed: character, second, minute", u.Unit)
		case u.Price < 0:
			return fmt.Errorf("per %s: %v must not be negative", u.Unit, u.Price)
		case u.Max < 0 || u.Max > MaxRecording || u.Max > 0 && u.Unit != SecondUnit:
			return fmt.Errorf("per %s: max is the length of the longest recording, from 1 to %d seconds", u.Unit, MaxRecording)
		case slices.ContainsFunc(p.Per[:i], func(o UnitPrice) bool { return o.Unit == u.Unit }):
			return fmt.Errorf("per %s is given twice", u.Unit)
		}
	}
	return nil
}

// longest returns the number of seconds of the longest recording.
func (u *UnitPrice) longest() int64 {
	return cmp.Or(max(u.Max, 0), DefaultRecording)
}

// isSize reports whether a part of the name of an image price is a size, such as 1024x1024.
func isSize(part string) bool {
	width, height, ok := strings.Cut(strings.ToLower(part), "x")
	return ok && width != "" && height != "" && strings.Trim(width+height, "0123456789") == ""
}

// imageRow returns the price of an image of a size and a quality, or nil. The name of a row is a
// size, a quality, or both as SIZE/QUALITY. A row with both takes precedence over a row with one of
// them, and of two such rows the more expensive one. A row without a name has the lowest precedence.
func (p *Price) imageRow(size, quality string) *Variant {
	named := func(name string) *Variant {
		return first(p.Image, func(v *Variant) bool { return strings.EqualFold(v.Resolution, name) })
	}
	if size != "" && quality != "" {
		if row := named(size + "/" + quality); row != nil {
			return row
		}
	}
	var row *Variant
	for _, name := range []string{size, quality} {
		if name != "" {
			row = higher(row, named(name))
		}
	}
	if row == nil {
		row = named("")
	}
	return row
}

// misspelt reports whether no price can have the name of a size because of its spelling, such as
// 1024*1024 or 01024x1024. A backend may read it as a size all the same.
func misspelt(size string) bool {
	width, height, _ := strings.Cut(strings.ToLower(size), "x")
	return size != "" && (!isSize(size) || width[0] == '0' || height[0] == '0')
}

// dearestImage returns the most expensive price that an image may have if a size or a quality that is
// auto may be any, and one that is empty, too, if anyDefault is set. If the image without a name would be the price of a misspelt size, that may
// be any as well.
func (p *Price) dearestImage(size, quality string, anyDefault bool) (row *Variant) {
	if unnamed := p.imageRow("", ""); misspelt(size) && unnamed != nil && p.imageRow(size, "") == unnamed {
		size = automatic
	}
	sizes, qualities := []string{size}, []string{quality}
	open := func(value string) bool { return value == automatic || value == "" && anyDefault }
	if open(size) {
		sizes = []string{""}
	}
	if open(quality) {
		qualities = []string{""}
	}
	for i := range p.Image {
		for part := range strings.SplitSeq(p.Image[i].Resolution, "/") {
			switch {
			case part == "":
			case isSize(part) && open(size):
				sizes = append(sizes, part)
			case !isSize(part) && open(quality):
				qualities = append(qualities, part)
			}
		}
	}
	for _, s := range sizes {
		for _, q := range qualities {
			row = higher(row, p.imageRow(s, q))
		}
	}
	return row
}

// imageNames returns the names of the rows of images.
func (p *Price) imageNames() (names []string) {
	for _, row := range p.Image {
		names = append(names, row.Resolution)
	}
	return names
}

// unpricedUnits returns an error if p has no price for the units of a call.
func (p *Price) unpricedUnits(u *Units) *fault.Fault {
	switch {
	case u.Unit == NoUnit || len(p.Image) == 0 || u.Unit != ImageUnit:
		return nil
	case p.dearestImage(u.Size, u.Quality, true) != nil:
		return nil
	case u.Quality == "" || u.Quality == automatic:
		return unpricedOption("size", u.Size, p.imageNames())
	}
	return unpricedOption("quality", u.Quality, p.imageNames())
}

// reserveUnits returns the cost of the units of a call: what is reserved, and the highest charge. It
// returns false if the cost is out of range.
func (p *Price) reserveUnits(u *Units) (reserved, highest money.Amount, ok bool) {
	var each money.Amount
	count, most := u.Count, u.Count
	if u.Unit == ImageUnit {
		if row := p.dearestImage(u.Size, u.Quality, true); row != nil {
			each = row.Price
		}
	} else if u.Unit == SearchUnit {
		each, count, most = p.Request, count-1, most-1
	} else if per := p.per(u.Unit); per != nil {
		each = per.Price
		if u.Unit == SecondUnit { // a length that the caller gives does not limit what the backend reports
			most = per.longest()
			count = min(count, most)
		}
	}
	low, fits := times(count, int64(each))
	high, ok := times(most, int64(each))
	return money.Amount(low), money.Amount(high), fits && ok
}

// chargeUnits adds the units of a call to its charge.
func (p *Price) chargeUnits(c *Charge, u *Units, r *usage.Report, unbounded bool) {
	if u == nil || p == nil {
		return
	}
	count, name, each := u.Count, UnitPrefix+string(u.Unit), money.Amount(0)
	if u.Unit == ImageUnit {
		count = r.Images
		if row := p.imageOf(u, r); row != nil {
			each = row.Price
			if row.Resolution != "" {
				name += " " + row.Resolution
			}
		}
	} else if u.Unit == SearchUnit {
		each = p.Request
		if count = u.Estimate; r.Searches > 0 {
			count = r.Searches
		}
	} else if per := p.per(u.Unit); per != nil {
		each = per.Price
	}
	limit := u.Count
	if u.Unit == SecondUnit {
		if per := p.per(u.Unit); per != nil {
			limit = per.longest()
		}
		if count = min(u.Estimate, u.Count); r.Seconds > 0 {
			count = r.Seconds
		}
	}
	if unbounded {
		limit = math.MaxInt64
	}
	c.Cut = c.Cut || count > limit
	count = min(count, limit)
	if u.Unit == SearchUnit { // the price of the request covers the first one
		count--
	}
	if len(p.Image) > 0 || u.Unit != ImageUnit && p.per(u.Unit) != nil {
		c.Units = count
	}
	if each == 0 || count == 0 {
		return
	}
	c.tools = append(c.tools, ToolCharge{name, count, each})
	cost, ok := times(count, int64(each))
	if ok {
		c.Amount, ok = c.Amount.Add(money.Amount(cost))
	}
	c.Amount = inRange(c.Amount, ok)
}

// imageOf returns the price of an image of an answer. The answer may name its size and its quality.
// Otherwise those of the request apply. A value that neither names is the default of the vendor: the
// row without a name if there is one, or else the most expensive row.
func (p *Price) imageOf(u *Units, r *usage.Report) *Variant {
	size, quality := cmp.Or(r.Size, u.Size), cmp.Or(r.Quality, u.Quality)
	if row := p.dearestImage(size, quality, false); row != nil {
		return row
	}
	if row := p.dearestImage(size, quality, true); row != nil {
		return row
	}
	return p.dearestImage(u.Size, u.Quality, true)
}
