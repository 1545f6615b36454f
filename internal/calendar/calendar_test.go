package calendar

import (
	"testing"
	"time"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestPeriodsBeginAndEndInUTC(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reset            Reset
		now, start, next string
	}{
		{Day, "2026-11-20T23:59:59Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{Day, "2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		{Day, "2026-11-21T07:30:00+08:00", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{Week, "2026-11-20T12:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"}, // a Friday
		{Week, "2026-11-22T23:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"}, // a Sunday
		{Week, "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"},
		{Month, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{Month, "2028-02-29T00:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
	} {
		now := at(t, c.now)
		if got := c.reset.Start(now); !got.Equal(at(t, c.start)) {
			t.Errorf("%s of %s starts at %v, want %s", c.reset, c.now, got, c.start)
		}
		if got := c.reset.Next(now); !got.Equal(at(t, c.next)) {
			t.Errorf("%s of %s ends at %v, want %s", c.reset, c.now, got, c.next)
		}
	}
	if start, next := Never.Start(time.Now()), Never.Next(time.Now()); start.Unix() != 0 || !next.IsZero() {
		t.Errorf("the period of never starts at %v and ends at %v", start, next)
	}
}

func TestCalendarMonthsClampTheDay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		duration    Duration
		from, after string
	}{
		{Duration{1, Months}, "2026-01-31T10:20:30Z", "2026-02-28T10:20:30Z"},
		{Duration{1, Months}, "2028-01-31T10:20:30Z", "2028-02-29T10:20:30Z"},
		{Duration{1, Months}, "2026-12-15T00:00:00Z", "2027-01-15T00:00:00Z"},
		{Duration{3, Months}, "2026-11-30T00:00:00Z", "2027-02-28T00:00:00Z"},
		{Duration{1, Years}, "2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z"},
		{Duration{4, Years}, "2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"},
		{Duration{30, Days}, "2026-02-01T00:00:00Z", "2026-03-03T00:00:00Z"},
		{Duration{36, Hours}, "2026-02-01T00:00:00Z", "2026-02-02T12:00:00Z"},
		{Duration{1, Months}, "2026-02-01T02:00:00+08:00", "2026-02-28T18:00:00Z"}, // January 31st in UTC
	} {
		if got := c.duration.After(at(t, c.from)); !got.Equal(at(t, c.after)) {
			t.Errorf("%v after %s is %v, want %s", c.duration, c.from, got, c.after)
		}
	}
}

func TestInvalidDurationsAndResetsAreRefused(t *testing.T) {
	t.Parallel()
	for _, d := range []Duration{{0, Days}, {-1, Days}, {1001, Days}, {1, "weeks"}, {1, "months"}, {1, ""}} {
		if d.Validate() == nil {
			t.Errorf("%+v was accepted", d)
		}
	}
	if _, err := ParseReset("hour"); err == nil {
		t.Error("an hourly reset was accepted")
	}
	if r, err := ParseReset(""); err != nil || r != Never {
		t.Errorf("the empty reset is %q, %v", r, err)
	}
}
