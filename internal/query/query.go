// Package query reads the parameters of a request: texts, numbers, words, flags, times, and the
// requested part of a list. [Query] reads them, [Page] is a part of a list. The package owns the
// default and maximum sizes of lists and the texts of refusals. It imports only internal/fault.
package query

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Query reads the parameters of a request. Fault is the first error; values that are read after
// it are not valid. An empty parameter counts as absent, except for a flag.
type Query struct {
	Values url.Values
	Fault  *fault.Fault
}

// Of returns the query of a request.
func Of(r *http.Request) *Query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &Query{Fault: fault.New(fault.InvalidParameter, "the query cannot be read")}
	}
	return &Query{Values: values}
}

// CheckNames refuses an unknown parameter: a misspelt parameter must not count as absent.
func (q *Query) CheckNames(known []string) {
	for _, name := range slices.Sorted(maps.Keys(q.Values)) {
		if q.Fault != nil || slices.Contains(known, name) {
			continue
		}
		allowed := "none"
		if len(known) > 0 {
			allowed = strings.Join(known, ", ")
		}
		q.Fault = fault.At(fault.InvalidParameter, name, "%.64q is not a parameter of this path; allowed: %s", name, allowed)
	}
}

// Refuse sets the fault of a parameter, unless Fault is already set.
func (q *Query) Refuse(name, format string, args ...any) {
	if q.Fault == nil {
		q.Fault = fault.At(fault.InvalidParameter, name, "`"+name+"` "+format, args...)
	}
}

// maxText bounds the length of a parameter, in bytes.
const maxText = 256

// Text returns a parameter, empty if it is absent. It refuses a parameter that is given twice.
func (q *Query) Text(name string) string {
	given := q.Values[name]
	if len(given) > 1 {
		q.Refuse(name, "is given twice")
	}
	if len(given) == 0 {
		return ""
	}
	if len(given[0]) > maxText {
		q.Refuse(name, "is longer than %d bytes", maxText)
	}
	return given[0]
}

// Number returns a parameter that is a whole number from minimum to maximum, or byDefault if it
// is absent.
func (q *Query) Number(name string, byDefault, minimum, maximum int64) int64 {
	text := q.Text(name)
	if text == "" {
		return byDefault
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < minimum || n > maximum || text[0] == '+' {
		q.Refuse(name, "must be a whole number from %d to %d", minimum, maximum)
		return byDefault
	}
	return n
}

// Word returns a parameter that is one of words; the first word is the default.
func (q *Query) Word(name string, words ...string) string {
	given := q.Text(name)
	if given == "" {
		return words[0]
	}
	if !slices.Contains(words, given) {
		q.Refuse(name, "must be one of %s", strings.Join(words, ", "))
		return words[0]
	}
	return given
}

// Flag returns a parameter that is true or false; false if it is absent. It refuses a parameter
// without a value: a request with `dry_run` alone must not cost anything.
func (q *Query) Flag(name string) bool {
	given := q.Text(name)
	if q.Values.Has(name) && given != "true" && given != "false" {
		q.Refuse(name, "must be true or false")
	}
	return given == "true"
}

// Span returns the half-open span of the parameters start and end. Each is in Unix seconds, or a day
// in UTC such as 2026-11-20; the day end is in the span. An absent parameter is the zero Time.
func (q *Query) Span() (start, end time.Time) {
	start, end = q.moment("start", 0), q.moment("end", 1)
	if !start.IsZero() && !end.IsZero() && !start.Before(end) {
		q.Refuse("end", "must be after `start`")
	}
	return start, end
}

// moment returns a time. For a day it returns the beginning of the day that is this many days
// later.
func (q *Query) moment(name string, days int) time.Time {
	const year9999 = 253402300799
	text := q.Text(name)
	if text == "" {
		return time.Time{}
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil && t.Unix() >= 0 {
		return t.AddDate(0, 0, days)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > year9999 {
		q.Refuse(name, "must be a time in Unix seconds or a day such as 2026-11-20")
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// Sizes of lists. A page is one answer of a list of tasks, keys, orders and so on. Lines are the
// rows of an account, or the output of a command for an operator.
const (
	DefaultPage  = 20
	MaxPage      = 100
	DefaultLines = 100
	MaxLines     = 10_000

	maxNumber = 1_000_000 // of a page number
)

// Page is a part of a list: at most Limit items, after the first Skip items or after the cursor.
type Page struct {
	Skip  int64
	After string // the cursor; empty: from the first item
	Limit int64
}

// Number returns the number of the page, from 1, if all pages have the same size.
func (p Page) Number() int64 { return p.Skip/p.Limit + 1 }

// Page returns the page that `p` and `page_size` select.
func (q *Query) Page() Page {
	number, size := q.Number("p", 1, 1, maxNumber), q.Number("page_size", DefaultPage, 1, MaxPage)
	return Page{Skip: (number - 1) * size, Limit: size}
}

// PageAfter returns the page that `after` and `limit` select.
func (q *Query) PageAfter() Page {
	return Page{After: q.Text("after"), Limit: q.Number("limit", DefaultPage, 1, MaxPage)}
}

// Lines returns the lines of an account that `skip` and `limit` select.
func (q *Query) Lines() Page {
	return Page{Skip: q.Number("skip", 0, 0, 1<<53), Limit: q.Number("limit", DefaultLines, 1, MaxLines)}
}

// Cut returns the items of a page. all are the items of the list.
func Cut[T any](all []T, p Page) []T {
	from := min(p.Skip, int64(len(all)))
	return all[from:min(from+p.Limit, int64(len(all)))]
}
