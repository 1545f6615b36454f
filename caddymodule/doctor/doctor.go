// Package doctor searches for dangerous and broken settings in a configuration of Caddy
// with modelgate.
//
// [Examine] runs every check on the decoded JSON of a configuration and returns its
// [Finding]s. It starts nothing and sends no requests; package cli has the command.
package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Finding is one dangerous or broken setting.
type Finding struct {
	Level  string `json:"level"` // "error", "warning" or "note"
	Where  string `json:"where"` // a path in the JSON configuration
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// Examine runs all checks on a configuration in the form of decoded JSON. admin is the address
// of the admin endpoint if the configuration names none, and env knows variables of the server.
func Examine(config any, admin string, env Environment) []Finding {
	findings := append(make([]Finding, 0, 8), checkAdmin(config, admin)...)
	for _, check := range []func(any) []Finding{checkTrustedProxies, checkLogs, checkExit, checkBlocks, checkPrices, checkRouting, checkStored, checkPayments, checkBaseURL, checkSessions, checkPasskeys, checkSecrets, checkTasks, checkMedia} {
		findings = append(findings, check(config)...)
	}
	return append(findings, checkEnvironment(config, env)...)
}

// takesNoRequests reports whether a log discards everything, or has only loggers that do
// not write requests.
func takesNoRequests(log any) bool {
	if get[string](log, "writer", "output") == "discard" {
		return true
	}
	include := get[[]any](log, "include")
	for _, logger := range include {
		if name, _ := logger.(string); strings.HasPrefix("http.log", name) || strings.HasPrefix(name, "http.log") || name == "http" {
			return false
		}
	}
	return len(include) > 0
}

// callHandlers are the handlers of model calls.
var callHandlers = []string{"modelgate_messages", "modelgate_completions", "modelgate_openai"}

// checkExit searches for a gateway that waits without limit for open streams when it
// stops.
func checkExit(config any) []Finding {
	if !hasHandler(config, callHandlers...) || at(config, "apps", "http", "grace_period") != nil {
		return nil
	}
	return []Finding{{
		"warning", "apps.http.grace_period", "grace_period is missing: Caddy waits without limit for open streams when it stops",
		"add to the global options: grace_period 5m",
	}}
}

// hasHandler reports whether the configuration has one of these handlers.
func hasHandler(config any, names ...string) (found bool) {
	walk(config, "", func(_ string, object map[string]any) {
		found = found || slices.Contains(names, get[string](object, "handler"))
	})
	return found
}

// checkBlocks checks the handlers in the blocks of model calls.
func checkBlocks(config any) []Finding {
	var findings []Finding
	walk(config, "", func(path string, object map[string]any) {
		handler, _ := object["handler"].(string)
		if !slices.Contains(callHandlers, handler) {
			return
		}
		sent := sentKeys(object["routes"])
		walk(object["routes"], path+".routes", func(path string, object map[string]any) {
			switch inner, _ := object["handler"].(string); {
			case inner == "reverse_proxy":
				findings = append(findings, checkProxy(path, object)...)
			case inner == "map":
				findings = append(findings, checkMap(path, object, sent)...)
			case inner == "modelgate_auth", slices.Contains(callHandlers, inner):
				findings = append(findings, Finding{
					"error", path, inner + " is in the block of " + handler + ", which removes the caller's key: it refuses every call",
					"move it out of the block",
				})
			}
		})
	})
	return findings
}

// inClear reports whether a secret is in the configuration itself, without a placeholder.
func inClear(value any) bool {
	return !strings.Contains(get[string](value), "{")
}

// usePlaceholder is the remedy for secrets in clear.
const usePlaceholder = "read it from the environment or a file: {env.NAME} or {file./path}"

func checkProxy(path string, proxy map[string]any) []Finding {
	var findings []Finding
	for _, value := range keysOf(proxy) {
		if inClear(value) {
			findings = append(findings, keyInClear(path))
		}
	}
	if buffers := get[float64](proxy, "response_buffers"); buffers != 0 {
		findings = append(findings, Finding{
			"error", path, "response_buffers delays streams until the buffer is full",
			"remove the line",
		})
	}
	return findings
}

// keysOf returns the values of the headers in which a reverse_proxy sends the key of the vendor.
func keysOf(proxy map[string]any) (values []any) {
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		values = append(values, get[[]any](proxy, "headers", "request", "set", name)...)
	}
	return values
}

// sentKeys returns the text of all headers with keys that the routes send.
func sentKeys(routes any) string {
	var sent strings.Builder
	walk(routes, "", func(_ string, object map[string]any) {
		if object["handler"] == "reverse_proxy" {
			fmt.Fprint(&sent, keysOf(object))
		}
	})
	return sent.String()
}

// checkMap searches for keys of vendors in clear among the outputs of a map.
func checkMap(path string, object map[string]any, sent string) []Finding {
	rows, _ := object["mappings"].([]any)
	rows = append(slices.Clone(rows), map[string]any{"outputs": object["defaults"]})
	for i, destination := range get[[]any](object, "destinations") {
		if name, _ := destination.(string); name == "" || !strings.Contains(sent, name) {
			continue
		}
		for _, row := range rows {
			outputs := get[[]any](row, "outputs")
			if i >= len(outputs) {
				continue
			}
			if key, _ := outputs[i].(string); key != "" && inClear(key) {
				return []Finding{keyInClear(path)}
			}
		}
	}
	return nil
}

func keyInClear(path string) Finding {
	return Finding{"warning", path, "a key is in clear in the configuration, which Caddy saves and logs at debug level", usePlaceholder}
}

// at returns the value at a path of names within decoded JSON, or nil.
func at(value any, path ...string) any {
	for _, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[name]
	}
	return value
}

// walk calls fn for every object within decoded JSON.
func walk(value any, path string, fn func(path string, object map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		fn(strings.TrimPrefix(path, "."), v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walk(v[name], path+"."+name, fn)
		}
	case []any:
		for i, element := range v {
			walk(element, fmt.Sprintf("%s[%d]", path, i), fn)
		}
	}
}

// get returns what [at] returns if it is a T, and the zero value otherwise.
func get[T any](value any, path ...string) T {
	found, _ := at(value, path...).(T)
	return found
}
