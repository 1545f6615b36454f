package query_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/query"
)

func of(parameters string) *query.Query {
	return query.Of(httptest.NewRequest("GET", "/?"+parameters, nil))
}

func TestPartsOfLists(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		parameters string
		read       func(*query.Query) query.Page
		want       query.Page
		refused    string // the parameter
	}{
		{"", (*query.Query).Page, query.Page{Limit: 20}, ""},
		{"p=3&page_size=7", (*query.Query).Page, query.Page{Skip: 14, Limit: 7}, ""},
		{"p=1000000&page_size=100", (*query.Query).Page, query.Page{Skip: 99_999_900, Limit: 100}, ""},
		{"p=0", (*query.Query).Page, query.Page{}, "p"},
		{"p=1000001", (*query.Query).Page, query.Page{}, "p"},
		{"page_size=101", (*query.Query).Page, query.Page{}, "page_size"},
		{"page_size=5&page_size=5", (*query.Query).Page, query.Page{}, "page_size"},
		{"", (*query.Query).PageAfter, query.Page{Limit: 20}, ""},
		{"after=x&limit=100", (*query.Query).PageAfter, query.Page{After: "x", Limit: 100}, ""},
		{"limit=0", (*query.Query).PageAfter, query.Page{}, "limit"},
		{"limit=%2B5", (*query.Query).PageAfter, query.Page{}, "limit"},
		{"", (*query.Query).Lines, query.Page{Limit: 100}, ""},
		{"skip=5&limit=10000", (*query.Query).Lines, query.Page{Skip: 5, Limit: 10_000}, ""},
		{"limit=10001", (*query.Query).Lines, query.Page{}, "limit"},
		{"skip=-1", (*query.Query).Lines, query.Page{}, "skip"},
	} {
		q := of(row.parameters)
		got := row.read(q)
		switch {
		case row.refused == "" && (q.Fault != nil || got != row.want):
			t.Errorf("%q selects %+v, %v", row.parameters, got, q.Fault)
		case row.refused != "" && (q.Fault == nil || q.Fault.Param != row.refused):
			t.Errorf("%q: %v", row.parameters, q.Fault)
		}
	}
}

func TestCutReturnsTheItemsOfAPage(t *testing.T) {
	t.Parallel()
	all := []int{1, 2, 3, 4, 5}
	for number, want := range map[string][]int{"1": {1, 2}, "3": {5}, "4": {}} {
		p := of("page_size=2&p=" + number).Page()
		if got := query.Cut(all, p); !slices.Equal(got, want) || p.Number() != int64(number[0]-'0') {
			t.Errorf("page %s is %v with the number %d", number, got, p.Number())
		}
	}
}

func TestAQueryThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	if q := of("%zz"); q.Fault == nil {
		t.Error("an invalid query is not refused")
	}
}
