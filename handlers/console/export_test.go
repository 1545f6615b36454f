package console

// Row is what tests are told of a route.
type Row struct {
	Method, Path string
	User, JSON   bool
	Half         bool   // half-open sessions are accepted, too
	Asks         string // as the table has it
	Params       []string
}

// Rows are the routes of users and pages, for tests from outside.
func Rows() (rows []Row) {
	for _, rt := range routes {
		if rt.who != service {
			rows = append(rows, Row{rt.method, rt.path, rt.who.HasAccount(), rt.takes == jsonBody, rt.who == half, rt.asks.name, rt.parameters()})
		}
	}
	return rows
}
