// Package query reads the parameters of a request: texts, numbers, words, flags and times, and
// which part of a list is asked for. [Query] reads them, [Page] is a part of a list. The package
// owns the default and the greatest sizes of lists and the texts of refusals. It imports nothing
// of this module but faults.
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

// Query reads the parameters of a request. The first error is kept as the fault; what is
// read after it means nothing. An empty parameter counts as absent, except for a flag.
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

// CheckNames refuses a parameter that is not among the known ones. A misspelt one must not
// be taken for an absent one.
func (q *Query) CheckNames(known []string) {
	for _, name := range slices.Sorted(maps.Keys(q.Values)) {
		if q.Fault != nil || slices.Contains(known, name) {
			continue
		}
		there := "there are none"
		if len(known) > 0 {
			there = "there are " + strings.Join(known, ", ")
		}
		q.Fault = fault.At(fault.InvalidParameter, name, "%.64q is no parameter of this path: %s", name, there)
	}
}

// Refuse sets the fault of a parameter, unless there is one.
func (q *Query) Refuse(name, format string, args ...any) {
	if q.Fault == nil {
		q.Fault = fault.At(fault.InvalidParameter, name, "`"+name+"` "+format, args...)
	}
}

// maxText bounds the length of a parameter, in bytes.
const maxText = 256

// Text returns a parameter, empty if it is absent. One that is given twice is refused.
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

// Number returns a parameter that is a whole number from least to most, or otherwise if it
// is absent.
func (q *Query) Number(name string, otherwise, least, most int64) int64 {
	text := q.Text(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most || text[0] == '+' {
		q.Refuse(name, "must be a whole number from %d to %d", least, most)
		return otherwise
	}
	return n
}

// Word returns a parameter that is one of some words; the first is the default.
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

// Flag returns a parameter that is true or false; false if it is absent. One without a
// value is refused: dry_run alone must not cost anything.
func (q *Query) Flag(name string) bool {
	given := q.Text(name)
	if q.Values.Has(name) && given != "true" && given != "false" {
		q.Refuse(name, "must be true or false")
	}
	return given == "true"
}

// Span returns the parameters start and end in Unix seconds, the zero Time where they are
// absent: a half-open span of time.
func (q *Query) Span() (start, end time.Time) {
	start, end = q.moment("start"), q.moment("end")
	if !start.IsZero() && !end.IsZero() && !start.Before(end) {
		q.Refuse("end", "must lie after `start`")
	}
	return start, end
}

func (q *Query) moment(name string) time.Time {
	const year9999 = 253402300799
	text := q.Text(name)
	if text == "" {
		return time.Time{}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > year9999 {
		q.Refuse(name, "must be a time in Unix seconds")
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}
