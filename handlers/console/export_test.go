package console

import "strings"

// Row is what tests are told of a route.
type Row struct {
	Method, Path string
	User, JSON   bool
	Params       []string
}

// Rows are the routes of users and pages, for tests from outside.
func Rows() (rows []Row) {
	for _, rt := range routes {
		rows = append(rows, Row{rt.method, rt.path, rt.who == user, rt.takes == jsonBody, strings.Fields(rt.params)})
	}
	return rows
}
