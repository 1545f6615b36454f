package pages

// overviewPages are the first page after the log-in.
var overviewPages = []page{
	{path: "", name: "overview", nav: true, loads: []load{
		{"usage", "/api/data/self/?group=day_model", ""},
		{"tasks", "/api/task/self/?page_size=5", ""},
		{"keys", "/api/token/?page_size=1", ""},
	}},
}
