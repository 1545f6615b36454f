package pages

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
)

// sampleReport returns a usage report for the days up to 2026-11-24 and its total. The cost increases
// with the number of the model and with the day. If free is true, all costs are zero, and total is the
// number of calls.
func sampleReport(t *testing.T, days, n int, free bool) (report map[string]any, total money.Amount) {
	t.Helper()
	end := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	start := end.AddDate(0, 0, -days)
	var items []string
	calls := 0
	for day := range days {
		for model := range n {
			cost := money.Amount((model+1)*(day+1)) * 1_000_003
			if free {
				cost = 0
			}
			total, _ = total.Add(cost)
			calls += model + 1
			items = append(items, fmt.Sprintf(`{"day":%q,"model":"m%d","calls":%d,"cost":%q}`, start.AddDate(0, 0, day).Format(time.DateOnly), model, model+1, cost))
		}
	}
	text := fmt.Sprintf(`{"start":%d,"end":%d,"total":{"calls":%d,"cost":%q},"items":[%s]}`, start.Unix(), end.Unix(), calls, total, strings.Join(items, ","))
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&report); err != nil {
		t.Fatal(err)
	}
	if free {
		total = money.Amount(calls)
	}
	return report, total
}

func TestTheFiguresOfAChartAddUp(t *testing.T) {
	t.Parallel()
	for _, days := range []int{1, 14, 30, 62, 63, 90, 366} {
		for _, models := range []int{1, 6, 7, 20} {
			for _, free := range []bool{false, true} {
				report, want := sampleReport(t, days, models, free)
				c := newChart(report)
				what := fmt.Sprintf("%d days, %d models, %s", days, models, c.Measure)
				if len(c.Series) != min(models, maxSeries) || c.Series[len(c.Series)-1].Others != (models > maxSeries) || c.Series[0].Model != fmt.Sprint("m", models-1) {
					t.Errorf("%s: the series are %+v", what, c.Series)
				}
				var total int64
				for _, day := range c.Days {
					var sum int64
					for i, n := range day.values {
						sum += n
						if day.Values[i] != c.text(n) {
							t.Errorf("%s: %d is written %s", what, n, day.Values[i])
						}
					}
					if sum != day.total || day.Total != c.text(sum) {
						t.Errorf("%s: the parts of %s are %d, the sum is %s", what, day.Day, sum, day.Total)
					}
					total += sum
				}
				if money.Amount(total) != want || (c.Measure == "calls") != free {
					t.Errorf("%s: the chart has %d, the API %d", what, total, want)
				}
				if last := c.Days[0].Day; !c.Weekly && last != "2026-11-24" || c.Weekly != (days > maxDays) || c.Weekly && last != "2026-11-18" {
					t.Errorf("%s: the last bar begins at %s", what, last)
				}
				for _, d := range []drawing{c.Wide, c.Narrow} {
					d.check(t, what)
				}
				if len(c.Narrow.Bars) != min(narrowBars, len(c.Wide.Bars)) {
					t.Errorf("%s: the narrow drawing has %d bars", what, len(c.Narrow.Bars))
				}
			}
		}
	}
	report, _ := sampleReport(t, 30, 0, false)
	if c := newChart(report); c != nil {
		t.Errorf("the chart of an empty report is %+v", c)
	}
}

// check reports bars that are outside the drawing or overlap.
func (d drawing) check(t *testing.T, what string) {
	t.Helper()
	labels, right := 0, d.Left
	for _, bar := range d.Bars {
		if bar.X < right || bar.Width < 1 || bar.X+bar.Width > d.Width {
			t.Errorf("%s: a bar is from %d to %d, the one before ends at %d", what, bar.X, bar.X+bar.Width, right)
		}
		right = bar.X + bar.Width
		below := d.Bottom
		for _, part := range bar.Parts {
			if part.Y+part.Height != below || part.Height < 1 || part.Y < 0 {
				t.Errorf("%s: a part is from %d to %d, the one below begins at %d", what, part.Y, part.Y+part.Height, below)
			}
			below = part.Y
		}
		if bar.Label != "" {
			labels++
		}
	}
	if labels == 0 || labels > d.Width/40 || len(d.Lines) < 2 || len(d.Lines) > 6 {
		t.Errorf("%s: %d labels and %d lines", what, labels, len(d.Lines))
	}
}
