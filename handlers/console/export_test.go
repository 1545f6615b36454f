package console

import "strings"

// Row is what tests are told of a route.
type Row struct {
	Method, Path string
	User, JSON   bool
	Half         bool   // half-open sessions may come, too
	Asks         string // as the table has it
	Params       []string
}

// Rows are the routes of users and pages, for tests from outside.
func Rows() (rows []Row) {
	for _, rt := range routes {
		rows = append(rows, Row{rt.method, rt.path, rt.who.known(), rt.takes == jsonBody, rt.who == half, string(rt.asks), strings.Fields(rt.params)})
	}
	return rows
}
