// Package calendar computes the periods of plans and budgets: days, weeks,
// months and years of the calendar, in UTC. It imports the standard library
// alone.
package calendar

import (
	"fmt"
	"time"
)

// Reset is how often a quota or a budget starts anew.
type Reset string

// The resets: never, at midnight, on Monday, on the first of the month; all
// in UTC.
const (
	Never Reset = "never"
	Day   Reset = "day"
	Week  Reset = "week"
	Month Reset = "month"
)

// ParseReset reads a reset. The empty word is never.
func ParseReset(word string) (Reset, error) {
	switch r := Reset(word); r {
	case "":
		return Never, nil
	case Never, Day, Week, Month:
		return r, nil
	}
	return "", fmt.Errorf("reset %q: it is never, day, week or month", word)
}

// Start returns when the period that now lies in has begun; the zero Unix time
// for one that never resets, so that the start names the period.
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

// Next returns when the period that now lies in ends; the zero Time for one
// that never resets.
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

// MaxCount bounds the count of a [Duration].
const MaxCount = 1000

// Duration is how long something sold lasts, by the calendar.
type Duration struct {
	Count int  `json:"count"`
	Unit  Unit `json:"unit"`
}

// ParseUnit reads a unit, in the singular or the plural.
func ParseUnit(word string) (Unit, error) {
	for _, unit := range []Unit{Hours, Days, Months, Years} {
		if word == string(unit) || word == string(unit)+"s" {
			return unit, nil
		}
	}
	return "", fmt.Errorf("unit %q: it is hour, day, month or year", word)
}

// Validate refuses what is no duration.
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

// String returns the duration in words: 1 month, 30 days.
func (d Duration) String() string {
	if d.Count == 1 {
		return fmt.Sprintf("1 %s", d.Unit)
	}
	return fmt.Sprintf("%d %ss", d.Count, d.Unit)
}

// After returns the time d after t. A day that the month does not have becomes
// its last: a month after January 31st is February 28th or 29th, at the same
// time of day.
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
