package tasks

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// query reads the parameters of a query. The first that will not do is kept as
// the fault; what is read after it means nothing. One that is empty is as one
// that is not there, but for a flag.
type query struct {
	values url.Values
	fault  *fault.Fault
}

// query returns that of the request. A name that nobody asks for has no effect,
// unless [query.only] is told so.
func (req *request) query() *query {
	if req.r.URL.RawQuery == "" {
		return new(query)
	}
	values, err := url.ParseQuery(req.r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.fault = fault.New(fault.InvalidParameter, "the query cannot be read")
	}
	return q
}

// only refuses names that are not known, where something is paid for: a misspelt
// dry_run must not cost anything.
func (q *query) only(known ...string) {
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !slices.Contains(known, name) && q.fault == nil {
			q.fault = fault.At(fault.InvalidParameter, name, "%.64q is no parameter of this path: there is %s", name, strings.Join(known, ", "))
		}
	}
}

func (q *query) refuse(name, format string, args ...any) {
	if q.fault == nil {
		q.fault = fault.At(fault.InvalidParameter, name, "`"+name+"` "+format, args...)
	}
}

// text returns a parameter. One that is there twice has two meanings and is
// refused.
func (q *query) text(name string) string {
	given := q.values[name]
	if len(given) > 1 {
		q.refuse(name, "is given twice")
	}
	if len(given) == 0 {
		return ""
	}
	return given[0]
}

// number returns a parameter that is a whole number within bounds; zero when it
// is not there.
func (q *query) number(name string, least, most int) int {
	word := q.text(name)
	if word == "" {
		return 0
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < least || n > most || word[0] == '+' {
		q.refuse(name, "must be a whole number from %d to %d", least, most)
		return 0
	}
	return n
}

// flag returns a parameter that is true or false; false when it is not there. One
// without a value is refused: dry_run alone must not cost anything.
func (q *query) flag(name string) bool {
	if !q.values.Has(name) {
		return false
	}
	switch q.text(name) {
	case "true":
		return true
	case "false":
		return false
	}
	q.refuse(name, "must be true or false")
	return false
}

// wait returns for how long the caller wants to wait for a change.
func (q *query) wait() time.Duration {
	return time.Duration(q.number("wait", 0, int(task.MostWait/time.Second))) * time.Second
}
