package console

// Row has the fields of a route that tests use.
type Row struct {
	Method, Path string
	User, JSON   bool
	Half         bool   // the route accepts half-open sessions
	Asks         string // the name of the protection
	Params       []string
}

// Rows returns the routes of users and pages, for tests in other packages.
func Rows() (rows []Row) {
	for _, rt := range routes {
		if rt.who != service {
			rows = append(rows, Row{rt.method, rt.path, rt.who.HasAccount(), rt.takes == jsonBody || rt.takes == taskBody, rt.who == half, rt.asks.name, rt.parameters()})
		}
	}
	return rows
}
