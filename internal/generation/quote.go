package generation

import (
	"cmp"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Quote returns the amount to hold for c at a price, and how the result will be
// charged. It refuses a request without a duration if the price is per second, and a
// request whose resolution has no row in the price.
func (c *Checked) Quote(price *catalog.Price) (catalog.Quote, *fault.Fault) {
	work := c.work()
	if c.Passing() && c.Family == "" && !catalog.CommonResolution(work.Resolution) && !price.Names(c.Kind, work.Resolution) {
		work.Resolution = "" // its effect on the service is unknown
	}
	quote, refusal := price.Quote(c.Kind, work)
	if refusal == 0 && quote.Counts() {
		return c.selectRow(price, work, quote)
	}
	switch refusal {
	case 0:
		return quote, nil
	case catalog.NoDuration:
		param := c.param("duration")
		return quote, fault.At(fault.MissingParameter, param, "`%s` is required: the model %q has a price per second", param, c.Model)
	case catalog.UnpricedResolution:
		return quote, c.unpricedResolution(price, work)
	case catalog.TooMuch:
		field := "duration"
		if c.Kind == catalog.Image {
			field = "count"
		}
		return quote, invalid(c.param(field), "would cost more than can be counted")
	}
	return quote, fault.At(fault.ModelNotFound, "model", "there is no model %q here: it has no price for generations", c.Model)
}

// selectRow returns an error if something affects the price and is not counted. If
// c names a row of the price, it returns the quote of this row.
func (c *Checked) selectRow(price *catalog.Price, work catalog.Work, quote catalog.Quote) (catalog.Quote, *fault.Fault) {
	row, refused := c.unpriced(price)
	if refused != nil || row == "" {
		return quote, refused
	}
	quote, refusal := price.Only(c.Kind, row).Quote(c.Kind, work)
	if refusal != 0 {
		return quote, invalid(c.param("duration"), "would cost more than can be counted")
	}
	quote.Rule += ", " + row
	return quote, nil
}

func (c *Checked) unpricedResolution(price *catalog.Price, work catalog.Work) *fault.Fault {
	param, rows := "output.resolution", price.Second
	if c.Passing() {
		param = "height"
	}
	if c.Kind == catalog.Image {
		rows = price.Image
	}
	priced := make([]string, 0, len(rows))
	for _, row := range rows {
		word := cmp.Or(row.Resolution, "any")
		if row.Audio {
			word += " with sound"
		}
		priced = append(priced, word)
	}
	return invalid(param, "requests %s, which has no price for this model; priced: %s", work.Resolution, catalog.Either(priced))
}

// work returns the quantities of c that prices count. A value that unknown members
// may change is unknown, so the highest price is held.
func (c *Checked) work() catalog.Work {
	w := catalog.Work{Count: 1, Resolution: c.Output.Resolution}
	if c.Output.Count != nil {
		w.Count = int64(*c.Output.Count)
	}
	if c.Output.Duration != nil {
		w.Duration = *c.Output.Duration
	}
	switch {
	case !c.Passing():
		w.Audio = new(c.Output.AudioGeneration == Enabled)
	case c.opaque():
		w.Resolution = ""
	case c.Family != "": // no field requests sound
		w.Audio = new(false)
	}
	return w
}
