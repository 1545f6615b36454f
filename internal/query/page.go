package query

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
