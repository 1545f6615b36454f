package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
)

// chart is the usage of a span as stacked bars by day and model. It is drawn twice: the width of
// the page decides which drawing is shown. Days has the same figures.
type chart struct {
	Measure string // "cost", or "calls" if nothing cost anything
	Weekly  bool   // a bar is a week
	Series  []series
	Days    []*chartDay // those with usage, latest first
	Wide    drawing     // all bars
	Narrow  drawing     // the last ones
}

// series is the bars of one model, or of all others together.
type series struct {
	Model  string // empty: calls that a backend refused
	Others bool
}

// chartDay is a day, or a week that begins with it.
type chartDay struct {
	Day    string
	Values []string // by series; empty: zero
	Total  string
	values []int64
	total  int64
}

// drawing has the places of all parts of a chart, in pixels.
type drawing struct {
	Width, Height, Left, Bottom int
	Lines                       []chartLine
	Bars                        []chartBar
}

type chartLine struct {
	Y     int
	Label string
}

type chartBar struct {
	X, Width, Middle int
	Label            string // below; most have none
	Day              *chartDay
	Parts            []chartPart
}

type chartPart struct{ Series, Y, Height int }

const (
	maxSeries  = 6  // as many colours are in style.css
	maxDays    = 62 // a longer span has bars of weeks
	narrowBars = 14
)

// newChart returns the chart of a report of the API with the group day_model; nil if there was no
// usage.
func newChart(report map[string]any) *chart {
	items := get[[]any](report, "items")
	c := &chart{Measure: "cost"}
	if get[any](report, "total", "cost") == money.Amount(0).String() {
		c.Measure = "calls"
	}
	start := time.Unix(integer(report["start"]), 0).UTC()
	count, step := int(integer(report["end"])-start.Unix())/(24*60*60), 1
	if c.Weekly = count > maxDays; c.Weekly {
		step = 7
	}
	bars := make([]*chartDay, (count+step-1)/step)
	first := count - len(bars)*step // of the first bar, in days after the start; it may be before
	for i := range bars {
		bars[i] = &chartDay{Day: start.AddDate(0, 0, max(first+i*step, 0)).Format(time.DateOnly)}
	}
	index := c.takeSeries(items)
	for _, item := range items {
		item, _ := item.(map[string]any)
		model, _ := item["model"].(string)
		day, err := time.Parse(time.DateOnly, fmt.Sprint(item["day"]))
		s, shown := index[model]
		at := (int(day.Sub(start).Hours())/24 - first) / step
		if err != nil || !shown || at < 0 || at >= len(bars) {
			continue
		}
		bar := bars[at]
		if bar.values == nil {
			bar.values = make([]int64, len(c.Series))
		}
		n := c.measured(item)
		bar.values[s] += n
		bar.total += n
	}
	for _, bar := range slices.Backward(bars) {
		if bar.total == 0 {
			continue
		}
		c.Days, bar.Total = append(c.Days, bar), c.text(bar.total)
		for _, n := range bar.values {
			value := ""
			if n != 0 {
				value = c.text(n)
			}
			bar.Values = append(bar.Values, value)
		}
	}
	if len(c.Days) == 0 {
		return nil
	}
	c.Wide = c.draw(960, 260, bars)
	c.Narrow = c.draw(360, 240, bars[max(len(bars)-narrowBars, 0):])
	return c
}

// takeSeries chooses the models with the most usage, and returns the series of each model.
func (c *chart) takeSeries(items []any) map[string]int {
	totals := make(map[string]int64)
	for _, item := range items {
		item, _ := item.(map[string]any)
		model, _ := item["model"].(string)
		if n := c.measured(item); n != 0 {
			totals[model] += n
		}
	}
	models := make([]string, 0, len(totals))
	for model := range totals {
		models = append(models, model)
	}
	slices.SortFunc(models, func(a, b string) int { return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(a, b)) })
	index := make(map[string]int, len(models))
	for i, model := range models {
		if i >= maxSeries-1 && len(models) > maxSeries {
			i = maxSeries - 1
			c.Series = append(c.Series[:i], series{Others: true})
		} else {
			c.Series = append(c.Series, series{Model: model})
		}
		index[model] = i
	}
	return index
}

// measured returns what the chart shows of a sum: billionths of the currency, or calls.
func (c *chart) measured(sum map[string]any) int64 {
	if c.Measure == "calls" {
		return integer(sum["calls"])
	}
	amount, _ := money.Parse(fmt.Sprint(sum["cost"]))
	return int64(amount)
}

// text writes what measured returns.
func (c *chart) text(n int64) string {
	if c.Measure == "calls" {
		return strconv.FormatInt(n, 10)
	}
	return money.Amount(n).String()
}

// draw returns a drawing of bars.
func (c *chart) draw(width, height int, bars []*chartDay) drawing {
	const top, right, below, digit, label = 10, 12, 24, 7, 52 // pixels: the margins, a digit, the least distance of labels
	most := int64(1)
	for _, bar := range bars {
		most = max(most, bar.total)
	}
	tick := niceTick(most)
	ticks := (most + tick - 1) / tick
	longest := 0
	for i := range ticks + 1 {
		longest = max(longest, len(c.text(i*tick)))
	}
	d := drawing{Width: width, Height: height, Left: longest*digit + 8, Bottom: height - below}
	scale := float64(d.Bottom-top) / float64(ticks*tick)
	y := func(n int64) int { return d.Bottom - int(float64(n)*scale+.5) }
	for i := range ticks + 1 {
		d.Lines = append(d.Lines, chartLine{y(i * tick), number(c.text(i * tick))})
	}
	slot := float64(width-d.Left-right) / float64(len(bars))
	every := int(label/slot) + 1
	for i, bar := range bars {
		b := chartBar{X: d.Left + int(float64(i)*slot), Day: bar}
		b.Width = max(d.Left+int(float64(i+1)*slot)-b.X-max(int(slot/5), 1), 1)
		b.Middle = b.X + b.Width/2
		if (len(bars)-1-i)%every == 0 {
			b.Label = bar.Day[len("2006-"):]
		}
		sum, foot := int64(0), d.Bottom
		for s, n := range bar.values {
			if n > 0 {
				sum += n
				head := min(y(sum), foot-1) // the least usage is seen, too
				b.Parts = append(b.Parts, chartPart{s, head, foot - head})
				foot = head
			}
		}
		d.Bars = append(d.Bars, b)
	}
	return d
}

// niceTick returns 1, 2 or 5 times a power of ten, so that at most five lines reach most.
func niceTick(most int64) int64 {
	for power := int64(1); ; power *= 10 {
		for _, digit := range []int64{1, 2, 5} {
			if tick := digit * power; most/tick < 5 || power >= 1e17 {
				return tick
			}
		}
	}
}
