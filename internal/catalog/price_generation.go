package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
)

// Work is the quantities of a generation that determine its price, for the request or for a part of
// the result. In a result, zero means that the backend has not reported the field.
type Work struct {
	// Count is the number of images or videos. Zero means one.
	Count int64 `json:"count,omitempty"`

	// Duration is the length of each video.
	Duration Seconds `json:"duration,omitempty"`

	// Resolution is the resolution of each, in any case. Empty: unknown.
	Resolution string `json:"resolution,omitempty"`

	// Audio is true if there is sound. Nil: unknown.
	Audio *bool `json:"audio,omitempty"`
}

// Quote is the price of a generation at submission. It has all data to charge the task later,
// independent of later configurations. It is stored with the task.
type Quote struct {
	// Hold is the highest cost, which is held at submission.
	Hold money.Amount `json:"hold"`

	// Rule is the calculation of Hold as text.
	Rule string `json:"rule"`

	// Kind is the kind of generation.
	Kind Kind `json:"kind"`

	// Asked is the requested work.
	Asked Work `json:"asked"`

	// Request is the price per generation.
	Request money.Amount `json:"request,omitzero"`

	// Rows are the prices per second or per image, if any.
	Rows []Variant `json:"rows,omitempty"`
}

// Refusal is the reason why [Price.Quote] returns no quote.
type Refusal int

// The refusals.
const (
	Unpriced           Refusal = iota + 1 // the price is not for generations of this kind
	UnpricedResolution                    // no price for this resolution and sound
	NoDuration                            // a price per second without a duration
	TooMuch                               // out of range
)

// ForGenerations reports whether p prices generations of a kind.
func (p *Price) ForGenerations(kind Kind) bool {
	return p.Request > 0 || len(p.rowsOf(kind)) > 0
}

// Names reports whether p has a row for exactly this resolution.
func (p *Price) Names(kind Kind, resolution string) bool {
	return slices.ContainsFunc(p.rowsOf(kind), func(row Variant) bool { return strings.EqualFold(row.Resolution, resolution) })
}

// Only returns a copy of p with only the rows of this name, which then apply to any resolution.
func (p *Price) Only(kind Kind, name string) *Price {
	one := *p
	var rows []Variant
	for _, row := range p.rowsOf(kind) {
		if strings.EqualFold(row.Resolution, name) {
			row.Resolution = ""
			rows = append(rows, row)
		}
	}
	if kind == Image {
		one.Image = rows
	} else {
		one.Second = rows
	}
	return &one
}

func (p *Price) rowsOf(kind Kind) []Variant {
	if kind == Image {
		return p.Image
	}
	return p.Second
}

// Quote returns the quote for a generation. If resolution or sound is unknown, it uses the most
// expensive row. The zero Refusal means no refusal.
func (p *Price) Quote(kind Kind, asked Work) (Quote, Refusal) {
	if !p.ForGenerations(kind) {
		return Quote{}, Unpriced
	}
	asked.Count = max(asked.Count, 1)
	q := Quote{Kind: kind, Asked: asked, Request: p.Request, Rows: p.rowsOf(kind)}
	row, refusal := q.row(asked)
	if refusal != 0 {
		return Quote{}, refusal
	}
	item, ok := q.item(asked, row)
	var sum money.Amount
	if ok {
		sum, ok = money.Cost(item)
	}
	if ok {
		sum, ok = sum.Add(q.Request)
	}
	if !ok {
		return Quote{}, TooMuch
	}
	q.Hold, q.Rule = sum, q.rule(asked, row)
	return q, 0
}

// Cost returns the charge for the delivered parts, rounded up once and at most the hold. Values that
// the backend has not reported count as requested, including the number of parts. A resolution without
// a price counts as the requested one.
func (q *Quote) Cost(delivered ...Work) money.Amount {
	if len(delivered) == 0 {
		return q.Hold
	}
	items := make([]money.Item, 0, len(delivered))
	for _, part := range delivered {
		part = q.complete(part)
		row, refusal := q.row(part)
		if refusal != 0 {
			row, _ = q.row(q.Asked)
		}
		item, ok := q.item(part, row)
		if !ok {
			return q.Hold
		}
		items = append(items, item)
	}
	sum, ok := money.Cost(items...)
	if ok {
		sum, ok = sum.Add(q.Request)
	}
	if !ok {
		return q.Hold
	}
	return min(sum, q.Hold)
}

// Counts reports whether the quote charges for seconds or images.
func (q *Quote) Counts() bool {
	return slices.ContainsFunc(q.Rows, func(row Variant) bool { return row.Price > 0 })
}

// complete replaces the unknown values of a part by the requested ones.
func (q *Quote) complete(part Work) Work {
	part.Count = max(part.Count, 1)
	if part.Duration <= 0 {
		part.Duration = q.Asked.Duration
	}
	part.Resolution = cmp.Or(part.Resolution, q.Asked.Resolution)
	part.Audio = cmp.Or(part.Audio, q.Asked.Audio)
	return part
}

// row returns the row that applies to w, or nil. The rows of the resolution take precedence over the
// rows for all other resolutions. With sound, the row for sound takes precedence.
func (q *Quote) row(w Work) (*Variant, Refusal) {
	switch {
	case len(q.Rows) == 0:
		return nil, 0
	case q.Kind == Video && w.Duration <= 0:
		return nil, NoDuration
	}
	if w.Resolution == "" {
		return q.highest(w.Audio), 0
	}
	for _, resolution := range []string{w.Resolution, ""} {
		if row := q.forSound(resolution, w.Audio); row != nil {
			return row, 0
		}
	}
	return nil, UnpricedResolution
}

// forSound returns the row of a resolution with or without sound, or nil if there is none. If sound is
// unknown, it returns the more expensive row.
func (q *Quote) forSound(resolution string, audio *bool) *Variant {
	var silent, sound *Variant
	for i := range q.Rows {
		switch row := &q.Rows[i]; {
		case !strings.EqualFold(row.Resolution, resolution):
		case row.Audio:
			sound = row
		default:
			silent = row
		}
	}
	switch {
	case audio == nil:
		return higher(silent, sound)
	case *audio && sound != nil:
		return sound
	}
	return silent
}

// highest returns the most expensive row of all resolutions, including the row for all others.
func (q *Quote) highest(audio *bool) *Variant {
	var row *Variant
	for _, r := range q.Rows {
		row = higher(row, q.forSound(r.Resolution, audio))
	}
	if row == nil { // without sound, and every row is for sound
		for i := range q.Rows {
			row = higher(row, &q.Rows[i])
		}
	}
	return row
}

// higher returns the more expensive row. Either may be nil.
func higher(a, b *Variant) *Variant {
	if a == nil || b != nil && b.Price > a.Price {
		return b
	}
	return a
}

// item returns the quantity and the rate of w by a row, or false if it is out of range. Without a row,
// it is zero.
func (q *Quote) item(w Work, row *Variant) (money.Item, bool) {
	if row == nil {
		return money.Item{}, true
	}
	// Rates are per million, and a price per second is one per million microseconds.
	quantity := int64(money.Million)
	if q.Kind == Video {
		quantity = int64(w.Duration)
	}
	count, fits := times(w.Count, quantity)
	return money.Item{Count: count, Rate: money.RateOf(row.Price)}, fits
}

// rule returns the calculation as text: "2 videos × 8 s × 0.30 per second
// (1080P, with sound) + 0.01 per request".
func (q *Quote) rule(w Work, row *Variant) string {
	var terms []string
	if row != nil {
		item, unit := "image", "image"
		if q.Kind == Video {
			item, unit = "video", "second"
		}
		if w.Count != 1 {
			item += "s"
		}
		term := fmt.Sprintf("%d %s", w.Count, item)
		if q.Kind == Video {
			term += fmt.Sprintf(" × %v s", w.Duration)
		}
		term += fmt.Sprintf(" × %v per %s", row.Price, unit)
		if text := row.describe(); text != "" {
			term += " (" + text + ")"
		}
		terms = append(terms, term)
	}
	if q.Request > 0 {
		terms = append(terms, fmt.Sprintf("%v per request", q.Request))
	}
	return strings.Join(terms, " + ")
}

// describe returns the resolution and the sound of a row as text.
func (v *Variant) describe() string {
	var words []string
	if v.Resolution != "" {
		words = append(words, v.Resolution)
	}
	if v.Audio {
		words = append(words, "with sound")
	}
	return strings.Join(words, ", ")
}
