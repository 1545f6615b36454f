package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
)

// Work is what prices count of a generation: of all that is asked for, or of
// one part of what was delivered. Of that a field is zero where the backend does
// not tell.
type Work struct {
	// Count is how many images or videos there are. Zero is one.
	Count int64 `json:"count,omitempty"`

	// Duration is the length of each video.
	Duration Seconds `json:"duration,omitempty"`

	// Resolution is that of each, in any case. Empty: not known.
	Resolution string `json:"resolution,omitempty"`

	// Audio tells whether there is sound. Nil: not known.
	Audio *bool `json:"audio,omitempty"`
}

// Quote is the price of a generation as it was at submission, with all that is
// needed to settle it later, whatever has become of the configuration. It is
// stored with the task.
type Quote struct {
	// Hold is the greatest price, which is held at submission.
	Hold money.Amount `json:"hold"`

	// Rule says for a person how Hold came about.
	Rule string `json:"rule"`

	// Kind is what is generated.
	Kind Kind `json:"kind"`

	// Asked is what was asked for.
	Asked Work `json:"asked"`

	// Request is the price of the generation itself.
	Request money.Amount `json:"request,omitzero"`

	// Rows are the prices per second, or per image; none where neither counts.
	Rows []Variant `json:"rows,omitempty"`
}

// Refusal is why there is no quote.
type Refusal int

// The refusals.
const (
	Unpriced           Refusal = iota + 1 // the price is not one of generations of this kind
	UnpricedResolution                    // it has none for this resolution and sound
	NoDuration                            // it counts seconds, and there is no duration
	TooMuch                               // it is more than can be counted
)

// ForGenerations tells whether p says what a generation of a kind costs.
func (p *Price) ForGenerations(kind Kind) bool {
	return p.Request > 0 || len(p.rowsOf(kind)) > 0
}

// Names tells whether p has a row for this very resolution.
func (p *Price) Names(kind Kind, resolution string) bool {
	return slices.ContainsFunc(p.rowsOf(kind), func(row Variant) bool { return strings.EqualFold(row.Resolution, resolution) })
}

// Only returns p with the rows of this name alone, which then hold for any resolution.
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

// Quote returns the greatest price of a generation: that of what is asked, and
// where the resolution or the sound is not known, of the dearest that there is.
// The zero Refusal is none.
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

// Cost returns what is charged for the parts that were delivered, rounded up
// once and never more than is held. What a backend does not tell counts as it
// was asked for, also that there are no parts, and a resolution that has no
// price as the one that was asked for.
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

// Counts reports whether it charges for seconds or images.
func (q *Quote) Counts() bool {
	return slices.ContainsFunc(q.Rows, func(row Variant) bool { return row.Price > 0 })
}

// complete fills in what is not told of a part.
func (q *Quote) complete(part Work) Work {
	part.Count = max(part.Count, 1)
	if part.Duration <= 0 {
		part.Duration = q.Asked.Duration
	}
	if part.Resolution == "" {
		part.Resolution = q.Asked.Resolution
	}
	if part.Audio == nil {
		part.Audio = q.Asked.Audio
	}
	return part
}

// row returns the row that holds for w, nil where none counts. Rows that name
// the resolution go before those for all others, and among them the one for
// sound, where there is sound, before the one for both.
func (q *Quote) row(w Work) (*Variant, Refusal) {
	switch {
	case len(q.Rows) == 0:
		return nil, 0
	case q.Kind == Video && w.Duration <= 0:
		return nil, NoDuration
	}
	if w.Resolution == "" {
		return q.dearest(w.Audio), 0
	}
	for _, resolution := range []string{w.Resolution, ""} {
		if row := q.forSound(resolution, w.Audio); row != nil {
			return row, 0
		}
	}
	return nil, UnpricedResolution
}

// forSound returns the row of a resolution that holds with or without sound, or
// the dearer one when that is not known; nil when there is none.
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
		return dearer(silent, sound)
	case *audio && sound != nil:
		return sound
	}
	return silent
}

// dearest returns the dearest of the rows that each resolution has; the row for
// all others is one of them.
func (q *Quote) dearest(audio *bool) *Variant {
	var top *Variant
	for _, row := range q.Rows {
		top = dearer(top, q.forSound(row.Resolution, audio))
	}
	if top == nil { // silent, and every row is for sound
		for i := range q.Rows {
			top = dearer(top, &q.Rows[i])
		}
	}
	return top
}

func dearer(a, b *Variant) *Variant {
	if a == nil || b != nil && b.Price > a.Price {
		return b
	}
	return a
}

// item is what w counts by a row, nothing where there is none; false when it is
// out of range.
func (q *Quote) item(w Work, row *Variant) (money.Item, bool) {
	if row == nil {
		return money.Item{}, true
	}
	// A rate is for a million: of millionths of a second it is the price of one.
	each := int64(money.Million)
	if q.Kind == Video {
		each = int64(w.Duration)
	}
	count, fits := times(w.Count, each)
	return money.Item{Count: count, Rate: money.RateOf(row.Price)}, fits
}

// rule writes the sum down: "2 videos × 8 s × 0.30 per second (1080P, with
// sound) + 0.01 per request".
func (q *Quote) rule(w Work, row *Variant) string {
	var terms []string
	if row != nil {
		things, unit := "image", "image"
		if q.Kind == Video {
			things, unit = "video", "second"
		}
		if w.Count != 1 {
			things += "s"
		}
		term := fmt.Sprintf("%d %s", w.Count, things)
		if q.Kind == Video {
			term += fmt.Sprintf(" × %v s", w.Duration)
		}
		term += fmt.Sprintf(" × %v per %s", row.Price, unit)
		if of := row.of(); of != "" {
			term += " (" + of + ")"
		}
		terms = append(terms, term)
	}
	if q.Request > 0 {
		terms = append(terms, fmt.Sprintf("%v per request", q.Request))
	}
	return strings.Join(terms, " + ")
}

// of says what a row is for.
func (v *Variant) of() string {
	var of []string
	if v.Resolution != "" {
		of = append(of, v.Resolution)
	}
	if v.Audio {
		of = append(of, "with sound")
	}
	return strings.Join(of, ", ")
}
