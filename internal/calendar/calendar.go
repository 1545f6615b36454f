// Package calendar computes the periods of plans and budgets: days, weeks, months and years in UTC.
// [Reset] is the period of a budget or a quota, [Duration] the duration of a plan. The package
// imports only the standard library.
package calendar

import (
	"fmt"
	"time"
)

// Reset is how often a quota or a budget is reset.
type Reset string

// The resets: never, at midnight, at midnight on Monday, at midnight on the first of the month; all
// in UTC.
const (
	Never Reset = "never"
	Day   Reset = "day"
	Week  Reset = "week"
	Month Reset = "month"
)

// ParseReset parses a reset. The empty string means never.
func ParseReset(word string) (Reset, error) {
	switch r := Reset(word); r {
	case "":
		return Never, nil
	case Never, Day, Week, Month:
		return r, nil
	}
	return "", fmt.Errorf("reset %q: it is never, day, week or month", word)
}

// Start returns the beginning of the period that contains now. For a reset of
// never it returns the zero Unix time, so that the start identifies the period.
func (r Reset) Start(now time.Time) time.Time {
	now = now.UTC()
	year, month, day := now.Date()
	switch r {
	case Day:
	case Week:
		day -= (int(now.Weekday()) + 6) % 7
	case Month:
		day = 1
	default:
		return time.Unix(0, 0).UTC()
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// Next returns the end of the period that contains now, or the zero Time for a
// reset of never.
func (r Reset) Next(now time.Time) time.Time {
	start := r.Start(now)
	switch r {
	case Day:
		return start.AddDate(0, 0, 1)
	case Week:
		return start.AddDate(0, 0, 7)
	case Month:
		return start.AddDate(0, 1, 0)
	}
	return time.Time{}
}

// Unit is a unit of a [Duration].
type Unit string

// The units. A month is a calendar month.
const (
	Hours  Unit = "hour"
	Days   Unit = "day"
	Months Unit = "month"
	Years  Unit = "year"
)

// MaxCount is the highest count of a [Duration].
const MaxCount = 1000

// Duration is the duration of a plan in calendar units.
type Duration struct {
	Count int  `json:"count"`
	Unit  Unit `json:"unit"`
}

// ParseUnit parses a unit in the singular or the plural.
func ParseUnit(word string) (Unit, error) {
	for _, unit := range []Unit{Hours, Days, Months, Years} {
		if word == string(unit) || word == string(unit)+"s" {
			return unit, nil
		}
	}
	return "", fmt.Errorf("unit %q: it is hour, day, month or year", word)
}

// Validate returns an error for an invalid duration.
func (d Duration) Validate() error {
	if d.Count < 1 || d.Count > MaxCount {
		return fmt.Errorf("a duration has a count of 1 to %d, this has %d", MaxCount, d.Count)
	}
	unit, err := ParseUnit(string(d.Unit))
	if err == nil && unit != d.Unit {
		err = fmt.Errorf("unit %q: write %q", d.Unit, unit)
	}
	return err
}

// String returns the duration as text: 1 month, 30 days.
func (d Duration) String() string {
	if d.Count == 1 {
		return fmt.Sprintf("1 %s", d.Unit)
	}
	return fmt.Sprintf("%d %ss", d.Count, d.Unit)
}

// After returns the time d after t. If the month has no such day, it returns the last day of the
// month. A month after January 31st is February 28th or 29th, at the same time of day.
func (d Duration) After(t time.Time) time.Time {
	t = t.UTC()
	months := 0
	switch d.Unit {
	case Hours:
		return t.Add(time.Duration(d.Count) * time.Hour)
	case Days:
		return t.AddDate(0, 0, d.Count)
	case Months:
		months = d.Count
	case Years:
		months = 12 * d.Count
	}
	year, month, day := t.Date()
	first := time.Date(year, month+time.Month(months), 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(day, last)-1)
}
