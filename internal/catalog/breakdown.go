package catalog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// Breakdown is the calculation of a charge at the prices at the time of the call. It is the exact
// cost of the parts, rounded up once, plus the request and the tools.
type Breakdown struct {
	Parts    []Part       `json:"parts"`
	Sum      string       `json:"sum"`               // the exact cost of the parts
	Rounded  money.Amount `json:"rounded"`           // the same, rounded up
	Request  money.Amount `json:"request,omitempty"` // the price per request
	Tools    []ToolCharge `json:"tools,omitempty"`
	Total    money.Amount `json:"total"`
	Unlisted string       `json:"unlisted,omitempty"` // reported tier or region that the price does not list
}

// Part is the tokens of a call that were charged at the same rates.
type Part struct {
	Pass       string       `json:"pass,omitempty"`  // compaction or advisor; empty: the call itself
	Model      string       `json:"model,omitempty"` // of the pass
	Above      int64        `json:"above,omitempty"` // Tokens of the [Above] that applied
	Tier       string       `json:"tier,omitempty"`
	TierFactor money.Amount `json:"tier_factor,omitempty"` // absent: the tier has its own prices
	Geo        string       `json:"geo,omitempty"`
	GeoFactor  money.Amount `json:"geo_factor,omitempty"`
	Tokens     []Item       `json:"tokens"`
}

// Item is the tokens of one kind.
type Item struct {
	Kind   string       `json:"kind"`
	Tokens int64        `json:"tokens"`
	Price  money.Amount `json:"price"` // per million
	Cost   string       `json:"cost"`  // exact, times the factors
}

// ToolCharge is the charged uses of a tool.
type ToolCharge struct {
	Tool  string       `json:"tool"`
	Uses  int64        `json:"uses"`
	Price money.Amount `json:"price"` // of one use
}

// part is the tokens that are charged at the same rates.
type part struct {
	usage.Pass // zero kind: the call itself

	price  *Price // nil: the price of the call
	tier   *Tier  // nil: the rates of the price itself
	prompt int64
	geo    string       // empty: no factor
	factor money.Amount // of geo
}

// The flags of a part in a record.
const (
	hasTokens = 1 << iota // its tokens differ from those of the whole call
	hasRules
	hasPass
)

// Breakdown returns the breakdown of the charge for the record of the call, or "" for a free call.
// Each call writes a breakdown, so it is binary; usually it takes 7 bytes. It has the number of parts,
// the parts and, if any, the price of the request, the uses of tools and the unlisted name.
func (c *Charge) Breakdown() string {
	var buf [64]byte // few breakdowns are longer
	b := buf[:0]
	switch {
	case c.price != nil:
		b = c.own.append(binary.AppendUvarint(b, uint64(1+len(c.more))), c)
	case len(c.more) > 0:
		b = binary.AppendUvarint(b, uint64(len(c.more)))
	default:
		return ""
	}
	for i := range c.more {
		b = c.more[i].append(b, c)
	}
	if c.price == nil || c.price.Request == 0 && len(c.tools) == 0 && c.Unlisted == "" {
		return string(b)
	}
	b = appendPrice(b, c.price.Request)
	b = binary.AppendUvarint(b, uint64(len(c.tools)))
	for _, t := range c.tools {
		b = appendPrice(binary.AppendUvarint(appendText(b, t.Tool), uint64(t.Uses)), t.Price)
	}
	return string(appendText(b, c.Unlisted))
}

// append appends the part of a charge.
func (p *part) append(b []byte, c *Charge) []byte {
	at, flags := len(b), byte(0)
	b = append(b, 0)
	if p.Kind.Additional() {
		flags |= hasPass
		b = appendText(append(b, byte(p.Kind)), p.Model)
	}
	if p.Tokens != c.Tokens {
		flags |= hasTokens
		for _, n := range p.Tokens.ByKind() {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	price := cmp.Or(p.price, c.price)
	above := blockFor(price.Above, p.prompt)
	tier, factor := "", money.Amount(0)
	if p.tier != nil {
		tier, factor = p.tier.Names[0], p.tier.Factor
		if own := blockFor(p.tier.Above, p.prompt); own != nil {
			above = own
		}
	}
	above = cmp.Or(above, &Above{})
	if above.Tokens != 0 || tier != "" || p.factor != 0 {
		flags |= hasRules
		b = binary.AppendUvarint(b, uint64(above.Tokens))
		b = appendPrice(appendText(b, tier), factor)
		b = appendPrice(appendText(b, p.geo), p.factor)
	}
	b[at] = flags
	rates, _ := price.at(p.prompt, p.tier)
	for kind, n := range p.Tokens.ByKind() {
		if n > 0 {
			b = appendPrice(b, money.Amount(rates[kind]))
		}
	}
	return b
}

// ReadBreakdown decodes the result of Breakdown for a call with these tokens. It returns nil if
// the call is free.
func ReadBreakdown(record string, tokens usage.Tokens) (*Breakdown, error) {
	if record == "" {
		return nil, nil
	}
	r := breakdownReader{rest: []byte(record)}
	b := &Breakdown{}
	var sum money.Sum
	for range r.number() {
		b.Parts = append(b.Parts, r.part(tokens, &sum))
		if r.bad {
			break
		}
	}
	rounded, fits := sum.Amount()
	b.Sum, b.Rounded = sum.String(), inRange(rounded, fits)
	if len(r.rest) > 0 {
		b.Request = r.price()
		for range r.number() {
			b.Tools = append(b.Tools, ToolCharge{r.text(), r.number(), r.price()})
			if r.bad {
				break
			}
		}
		b.Unlisted = r.text()
	}
	if r.bad || len(r.rest) > 0 {
		return nil, errors.New("catalog: this build cannot read the breakdown of the charge")
	}
	total, ok := b.Rounded.Add(b.Request)
	for _, t := range b.Tools {
		cost, fits := times(t.Uses, int64(t.Price))
		if ok = ok && fits; ok {
			total, ok = total.Add(money.Amount(cost))
		}
	}
	b.Total = inRange(total, ok)
	return b, nil
}

const milliUnit = money.Unit / 1000

// appendPrice appends a price or a factor. A multiple of 0.001 takes fewer bytes.
func appendPrice(b []byte, price money.Amount) []byte {
	if price%milliUnit == 0 {
		return binary.AppendUvarint(b, uint64(price/milliUnit)<<1|1)
	}
	return binary.AppendUvarint(b, uint64(price)<<1)
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// breakdownReader reads a record. After an error, bad is set and all results are zero.
type breakdownReader struct {
	rest []byte
	bad  bool
}

func (r *breakdownReader) part(all usage.Tokens, sum *money.Sum) (p Part) {
	flags := r.number()
	if flags&hasPass != 0 {
		if p.Pass = "advisor"; r.number() == int64(usage.CompactionPass) {
			p.Pass = "compaction"
		}
		p.Model = r.text()
	}
	counts := all.ByKind()
	if flags&hasTokens != 0 {
		for kind := range counts {
			counts[kind] = r.number()
		}
	}
	factor := money.One
	if flags&hasRules != 0 {
		p.Above = r.number()
		p.Tier, p.TierFactor = r.text(), r.price()
		p.Geo, p.GeoFactor = r.text(), r.price()
		factor = money.FactorOf(cmp.Or(p.TierFactor, money.Unit), cmp.Or(p.GeoFactor, money.Unit))
	}
	for kind, n := range counts {
		if n <= 0 || r.bad {
			continue
		}
		price := r.price()
		var cost money.Sum
		cost.Add(money.Item{Count: n, Rate: money.RateOf(price)}, factor)
		sum.Plus(cost)
		p.Tokens = append(p.Tokens, Item{usage.KindName(kind), n, price, cost.String()})
	}
	return p
}

func (r *breakdownReader) unsigned() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *breakdownReader) number() int64 { return int64(min(r.unsigned(), math.MaxInt64)) }

func (r *breakdownReader) price() money.Amount {
	n := r.unsigned()
	if n&1 == 0 {
		return money.Amount(n >> 1)
	}
	return money.Amount(n>>1) * milliUnit
}

func (r *breakdownReader) text() string {
	n := r.unsigned()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}
