package console

import (
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
)

// query reads the parameters of a request.
type query struct{ *reply.Query }

func (req *request) query() query { return query{reply.QueryOf(req.r)} }

// window returns the parameters start and end in Unix seconds, the zero Time where they
// are absent: a half-open span of time.
func (q query) window() (start, end time.Time) {
	start, end = q.moment("start"), q.moment("end")
	if !start.IsZero() && !end.IsZero() && !start.Before(end) {
		q.Refuse("end", "must lie after `start`")
	}
	return start, end
}

func (q query) moment(name string) time.Time {
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

// paging says which page of a list is asked for.
type paging struct {
	page int64 // from 1
	size int64
}

// skip is how many items stand on the pages before.
func (p paging) skip() int64 { return (p.page - 1) * p.size }

const (
	maxPage         = 1_000_000
	maxPageSize     = 100
	defaultPageSize = 20
)

// paging returns the parameters p and page_size.
func (q query) paging() paging {
	return paging{q.Number("p", 1, 1, maxPage), q.Number("page_size", defaultPageSize, 1, maxPageSize)}
}
