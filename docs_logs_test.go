package modelgate_test

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/usage"
)

const logsPage = "docs/reference/logs.md"

// firstColumn returns the first code of each row of a table of the page.
func firstColumn(t *testing.T, heading string, header ...string) (names []string) {
	t.Helper()
	for _, row := range rowsOf(sectionsOf(read(t, logsPage))[heading], header...) {
		names = append(names, codesOf(row[0])[0])
	}
	return names
}

// groupsOf returns the first group of every match in the Go files of folders, without tests.
func groupsOf(t *testing.T, pattern string, folders ...string) (groups []string) {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	for _, file := range filesOf(t, ".go") {
		within := func(folder string) bool { return file == folder || strings.HasPrefix(file, folder+"/") }
		if strings.HasSuffix(file, "_test.go") || !slices.ContainsFunc(folders, within) {
			continue
		}
		for _, found := range expression.FindAllStringSubmatch(read(t, file), -1) {
			groups = append(groups, found[1])
		}
	}
	return groups
}

// fileWith returns the only Go file that contains all texts. Tests are skipped.
func fileWith(t *testing.T, texts ...string) (file string) {
	t.Helper()
	for _, name := range filesOf(t, ".go") {
		text := read(t, name)
		if strings.HasSuffix(name, "_test.go") || slices.ContainsFunc(texts, func(part string) bool { return !strings.Contains(text, part) }) {
			continue
		}
		if file != "" {
			t.Fatalf("%q are in %s and in %s", texts, file, name)
		}
		file = name
	}
	if file == "" {
		t.Fatalf("no file has %q", texts)
	}
	return file
}

// compareNames compares the names of a page with the names of the code, as sets.
func compareNames(t *testing.T, what string, page, code []string) {
	t.Helper()
	sorted := func(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
	if page, code = sorted(page), sorted(code); !slices.Equal(page, code) || len(code) == 0 {
		t.Errorf("%s: the page has\n%q\nthe code has\n%q", what, page, code)
	}
}

// TestTheReferenceHasEveryFieldOfTheLogs compares the tables of fields with the fields that
// the code writes.
func TestTheReferenceHasEveryFieldOfTheLogs(t *testing.T) {
	t.Parallel()
	const written = `enc\.Add\w+\("(\w+)"`
	file := fileWith(t, "MarshalLogObject", `"usage_cut"`)
	call := append(groupsOf(t, written, file), usage.KindNames()...)
	call = append(call, groupsOf(t, `\{"(\w+)", l\.\w+\}`, file)...)
	compareNames(t, "the line call", firstColumn(t, "Line call", "Field"), call)

	submission := groupsOf(t, written, fileWith(t, "MarshalLogObject", `"task_status"`))
	compareNames(t, "the line task", firstColumn(t, "Line task", "Field"), submission)

	event := groupsOf(t, `zap\.String\("(\w+)"`, "internal/audit/audit.go")
	event = append(event, groupsOf(t, `audit\.With\(zap\.String\("(\w+)"`, "caddymodule/runtime.go")...) // of a shared store
	compareNames(t, "the audit", firstColumn(t, "Audit lines", "Field"), event)
}

// TestTheReferenceHasEveryActionOfTheAudit compares the table of actions with the actions that
// the code records.
func TestTheReferenceHasEveryActionOfTheAudit(t *testing.T) {
	t.Parallel()
	actions := groupsOf(t, `(?:Action:|\.Action =|event\.Detail = session,|\baudit:|\.event\(|\.changed\(t,|setDrained\(.*,) *"([a-z0-9_.]+)"`, "internal")
	actions = append(actions, groupsOf(t, `"(subscription\.[a-z]+)"`, "internal/billing/sale.go")...)
	actions = append(actions, groupsOf(t, `\.note\("([a-z_.]+)"`, "caddymodule/adminapi")...)
	for prefix, words := range map[string][]string{
		"topup.":  groupsOf(t, `Kind = "([a-z]+)"`, "payments/payments.go"),
		"wallet.": groupsOf(t, `operation: "([a-z]+)"`, "internal/billing/wallet.go"),
	} {
		for _, word := range words {
			if word != "ignored" { // such a notice changes nothing
				actions = append(actions, prefix+word)
			}
		}
		actions = slices.DeleteFunc(actions, func(action string) bool { return action == prefix })
	}
	compareNames(t, "the actions", firstColumn(t, "Audit lines", "Action"), actions)
}

// TestTheReferenceHasEveryPlaceholder compares the table of placeholders with the doc comments
// of the handlers, and these with the placeholders that the code sets.
func TestTheReferenceHasEveryPlaceholder(t *testing.T) {
	t.Parallel()
	declared := groupsOf(t, "// `\\{(http\\.[a-z_.*]+)\\}` \\|", "handlers")
	var page []string
	for _, name := range firstColumn(t, "Placeholders", "Placeholder") {
		page = append(page, strings.Trim(name, "{}"))
	}
	compareNames(t, "the placeholders", page, declared)

	set := groupsOf(t, `(?:\bSet|setPlaceholder)\("(http\.[a-z_.]+)"`, "handlers", "internal")
	for _, name := range groupsOf(t, `(?m)^\tcase "([a-z_]+)":$`, fileWith(t, `case "first_byte":`)) {
		set = append(set, "http.modelgate."+name)
	}
	compareNames(t, "the placeholders that are set", append(set, "http.modelgate.usage.*", "http.modelgate.user_slot.*"), declared)
}

// TestTheReferenceHasEveryLogger compares the table of loggers with the modules that log and
// the names of other loggers.
func TestTheReferenceHasEveryLogger(t *testing.T) {
	t.Parallel()
	loggers := map[string]bool{"modelgate": true}
	for _, name := range groupsOf(t, `logger\.Named\("(\w+)"\)`, "caddymodule") {
		loggers["modelgate."+name] = true
	}
	for _, file := range filesOf(t, ".go") {
		if strings.HasSuffix(file, "_test.go") || !strings.Contains(read(t, file), "ctx.Logger()") {
			continue
		}
		for _, other := range filesOf(t, ".go") {
			if path.Dir(other) != path.Dir(file) {
				continue
			}
			for _, id := range groupsOf(t, `ID: +"([a-z_.]+)"`, other) {
				if !strings.HasPrefix(id, "http.matchers") && !strings.HasPrefix(id, "http.reverse_proxy") { // these do not log
					loggers[id] = true
				}
			}
		}
	}
	compareNames(t, "the loggers", firstColumn(t, "Loggers", "Logger"), slices.Collect(maps.Keys(loggers)))
}
