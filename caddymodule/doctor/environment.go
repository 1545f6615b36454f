package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/caddy-modelgate/modelgate/caddymodule/starter"
)

// Environment returns the value of a variable for the server, and whether it is known here.
type Environment func(name string) (value string, known bool)

// placeholder matches a variable of the environment in a value.
var placeholder = regexp.MustCompile(`\{env\.([^{}]+)\}`)

// checkEnvironment searches for credentials whose variable is empty or still has the value of init.
func checkEnvironment(config any, env Environment) (findings []Finding) {
	check := func(path, what string, value any) {
		for _, found := range placeholder.FindAllStringSubmatch(get[string](value), -1) {
			value, known := env(found[1])
			if !known || value != "" && value != starter.Unset {
				continue
			}
			state := "empty"
			if value != "" {
				state = "still " + value
			}
			findings = append(findings, Finding{
				"warning", path, fmt.Sprintf("the variable %s%s is %s: requests that need it fail", found[1], what, state),
				"write its value into the environment of the server, and restart the server",
			})
		}
	}
	each := func(path, what string, object map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(object)) {
			values, isList := object[name].([]any)
			if !isList {
				values = []any{object[name]}
			}
			for _, value := range values {
				check(path+"."+name, what, value)
			}
		}
	}
	walk(at(config, "apps", "modelgate"), "apps.modelgate", func(path string, object map[string]any) { each(path, "", object) })
	walk(at(config, "apps", "http"), "apps.http", func(path string, object map[string]any) {
		if set, ok := at(object, "headers", "request", "set").(map[string]any); ok && object["handler"] == "reverse_proxy" {
			upstreams, _ := object["upstreams"].([]any)
			for _, upstream := range upstreams[:min(len(upstreams), 1)] {
				each(path, fmt.Sprintf(", which is sent to %s,", at(upstream, "dial")), set)
			}
		}
	})
	return findings
}
