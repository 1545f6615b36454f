package console

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// query reads the parameters of a query. The first that will not do is kept as
// the fault; what is read after it means nothing.
type query struct {
	values url.Values
	fault  *fault.Fault
}

func (req *request) query() *query {
	values, err := url.ParseQuery(req.r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.fault = fault.New(fault.InvalidParameter, "the query cannot be read")
	}
	return q
}

// checkQuery refuses parameters that a user's route does not know: a misspelt one
// must not be taken for none. Routes with a body know none: who writes dry_run
// there would pay.
func (req *request) checkQuery(rt *route) *fault.Fault {
	if !rt.who.known() || req.r.URL.RawQuery == "" {
		return nil
	}
	q := req.query()
	if q.fault != nil {
		return q.fault
	}
	known := strings.Fields(rt.params)
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if slices.Contains(known, name) {
			continue
		}
		there := "there are none"
		if len(known) > 0 {
			there = "there are " + strings.Join(known, ", ")
		}
		return fault.At(fault.InvalidParameter, name, "%.64q is no parameter of this path: %s", name, there)
	}
	return nil
}

func (q *query) refuse(name, format string, args ...any) {
	if q.fault == nil {
		q.fault = fault.At(fault.InvalidParameter, name, "`"+name+"` "+format, args...)
	}
}

// text returns a parameter, empty when it is not there. One that is there twice
// has two meanings and is refused.
func (q *query) text(name string) string {
	given := q.values[name]
	if len(given) > 1 {
		q.refuse(name, "is given twice")
	}
	if len(given) == 0 {
		return ""
	}
	if len(given[0]) > maxWord {
		q.refuse(name, "is longer than %d bytes", maxWord)
	}
	return given[0]
}

// maxWord bounds the length of a parameter, in bytes.
const maxWord = 256

// number returns a parameter that is a whole number from 1 to most, or what it
// is by default.
func (q *query) number(name string, byDefault, most int64) int64 {
	word := q.text(name)
	if word == "" {
		return byDefault
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 1 || n > most {
		q.refuse(name, "must be a number from 1 to %d", most)
		return byDefault
	}
	return n
}

// moment returns a parameter that is a time in Unix seconds; the zero Time when
// it is not there.
func (q *query) moment(name string) time.Time {
	const year9999 = 253402300799
	word := q.text(name)
	if word == "" {
		return time.Time{}
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 || n > year9999 {
		q.refuse(name, "must be a time in Unix seconds")
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// window returns the parameters start and end, the zero Time where they are not
// there: a half-open span of time.
func (q *query) window() (start, end time.Time) {
	start, end = q.moment("start"), q.moment("end")
	if !start.IsZero() && !end.IsZero() && !start.Before(end) {
		q.refuse("end", "must lie after `start`")
	}
	return start, end
}

// word returns a parameter that is one of a few words; the first is what it is
// by default.
func (q *query) word(name string, words ...string) string {
	given := q.text(name)
	if given == "" {
		return words[0]
	}
	if !slices.Contains(words, given) {
		q.refuse(name, "must be one of %s", strings.Join(words, ", "))
		return words[0]
	}
	return given
}

// paging says which page of a list is wanted.
type paging struct {
	page int64 // from 1
	size int64
}

// skip is how many items stand on the pages before.
func (p paging) skip() int64 { return (p.page - 1) * p.size }

const (
	maxPage   = 1_000_000
	maxSize   = 100
	usualSize = 20
)

// paging returns the parameters p and page_size.
func (q *query) paging() paging {
	return paging{q.number("p", 1, maxPage), q.number("page_size", usualSize, maxSize)}
}
