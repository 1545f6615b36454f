package pages

import (
	"fmt"
	"html/template"
)

// overviewPages are the first page after the log-in.
var overviewPages = []page{
	{path: "", name: "overview", nav: true, loads: []load{
		{"usage", "/api/data/self/?group=day_model", ""},
		{"tasks", "/api/task/self/?page_size=5", ""},
		{"keys", "/api/token/?page_size=1", ""},
		{"models", "/api/user/models/?page_size=1", ""},
		latestSubscription,
	}},
}

// overviewFunctions are those of the template of this page.
var overviewFunctions = template.FuncMap{"refused_calls": refusedCalls}

// refusedCalls returns how many calls of a report by day and model were refused, and how many of a
// hundred calls were not, rounded down to a tenth; nil if there were no calls.
func refusedCalls(report map[string]any) map[string]any {
	total, _ := report["total"].(map[string]any)
	calls, refused := integer(total["calls"]), int64(0)
	if calls == 0 {
		return nil
	}
	for _, item := range get[[]any](report, "items") {
		if row, _ := item.(map[string]any); row["model"] == nil {
			refused += integer(row["calls"])
		}
	}
	tenths := (calls - refused) * 1000 / calls
	return map[string]any{"refused": refused, "accepted": fmt.Sprintf("%d.%d", tenths/10, tenths%10)}
}
