package pages

import "html/template"

// guidePages say how to call the gateway.
var guidePages = []page{
	{path: "/start", name: "start", nav: true, loads: []load{
		{"models", "/api/user/models/?page_size=1", ""},
		{"tasks", "/api/task/models/?page_size=100", ""},
	}},
	{path: "/reference", name: "reference", section: "start"},
	{path: "/reference/{chapter}", name: "chapter", section: "start"},
}

// guideFunctions are those of the templates of these pages.
var guideFunctions = template.FuncMap{"chapters": chapters}
