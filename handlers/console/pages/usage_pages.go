package pages

import (
	"html/template"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// allKeys are the keys of the user, for their names.
var allKeys = load{"keys", "/api/token/?page_size=100", ""}

// callFilter are the parameters that filter calls.
const callFilter = "start end key_id model"

// usagePages show what the calls of the user cost.
var usagePages = []page{
	{path: "/usage", name: "usage", nav: true, filtered: true, loads: []load{
		{"calls", "/api/log/self/", callFilter + " p"},
		{"usage", "/api/data/self/?group=day_model", callFilter},
		{"models", "/api/data/self/?group=model", callFilter},
		{"by_key", "/api/data/self/?group=key", callFilter},
		allKeys,
	}},
	{path: "/usage/{request_id}", name: "call", section: "usage", loads: []load{
		{"call", "/api/log/self/{request_id}", ""}, allKeys,
	}},
}

// usageFunctions are those of the templates of these pages.
var usageFunctions = template.FuncMap{
	"chart":       newChart,
	"token_kinds": tokenKinds,
	"key_name":    keyName,
	"calls_csv":   callsCSV,
	"days_ago":    daysAgo,
}

// daysAgo returns the day that many days ago, in UTC.
func daysAgo(n int64) string { return time.Now().UTC().AddDate(0, 0, -int(n)).Format(time.DateOnly) }

// kindCount is how many tokens of a kind there are.
type kindCount struct {
	Kind  string
	Count any
}

// tokenKinds returns the tokens of an answer in the order of [usage.KindNames].
func tokenKinds(tokens map[string]any) (counts []kindCount) {
	for _, kind := range usage.KindNames() {
		if n, found := tokens[kind]; found {
			counts = append(counts, kindCount{kind, n})
		}
	}
	return counts
}

// keyName returns the name of a key in a list of keys; empty if it is not there or has none.
func keyName(keys, id any) string {
	for _, item := range get[[]any](keys, "items") {
		if get[any](item, "id") == id {
			return get[string](item, "name")
		}
	}
	return ""
}

// callsCSV returns the URL of the calls of a page as a file.
func callsCSV(v *View) string { return csvURL(v, "/api/log/self/", callFilter+" format=csv") }
