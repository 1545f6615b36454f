package pages

import (
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// functions are those of the templates, in the language of l.
func (s *Site) functions(l *locale) template.FuncMap {
	all := template.FuncMap{
		"t":      l.text,
		"has":    l.has,
		"url":    func(parts ...any) string { return s.Path + fmt.Sprint(parts...) },
		"inside": s.inside,
		"asset":  s.assetURL,
		"languages": func() map[string]string {
			offered := make(map[string]string)
			for _, name := range s.Languages {
				offered[name] = LanguageNames[name]
			}
			return offered
		},
		"number":          number,
		"sentence":        sentence,
		"int":             integer,
		"date":            func(seconds any) string { return at(seconds, time.DateOnly) },
		"datetime":        func(seconds any) string { return at(seconds, "2006-01-02 15:04") },
		"exact":           func(seconds any) string { return at(seconds, time.DateTime) },
		"iso":             func(seconds any) string { return at(seconds, time.RFC3339) },
		"map":             pairs,
		"add":             func(a, b int64) int64 { return a + b },
		"nav":             navigation,
		"role":            roleOf,
		"may":             may,
		"pages":           lastPage,
		"with_query":      withQuery,
		"form":            formOf,
		"query":           queryOf,
		"mismatch_reason": func(reason string) string { return mismatchReason(l.text, reason) },

		"role_names": func(roles string) string { return roleNames(l.text, roles) },
	}
	for _, area := range []template.FuncMap{overviewFunctions, usageFunctions, walletFunctions, taskFunctions, guideFunctions, accountFunctions, adminFunctions} {
		maps.Copy(all, area)
	}
	return all
}

// sentence returns a text with a capital first letter.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// number groups the digits of a number before its point by commas, as English and Chinese do. It
// changes no digit.
func number(value any) string {
	text := fmt.Sprint(value)
	whole, fraction, pointed := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "−", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if pointed {
		whole += "." + fraction
	}
	return sign + whole
}

// integer returns a number of the API; 0 if value is none.
func integer(value any) int64 {
	switch v := value.(type) {
	case json.Number:
		n, _ := v.Int64()
		return n
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	case int:
		return int64(v)
	case int64:
		return v
	}
	return 0
}

// at writes a time of the API, in Unix seconds; empty if there is none.
func at(seconds any, layout string) string {
	n := integer(seconds)
	if n == 0 {
		return ""
	}
	return time.Unix(n, 0).UTC().Format(layout)
}

// get returns the member of an answer at a path, or the zero value if it is absent or not a T.
func get[T any](value any, path ...string) T {
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	found, _ := value.(T)
	return found
}

// pairs returns a map of names and values, for the arguments of a template.
func pairs(values ...any) map[string]any {
	m := make(map[string]any, len(values)/2)
	for i := 0; i+1 < len(values); i += 2 {
		m[fmt.Sprint(values[i])] = values[i+1]
	}
	return m
}

// entry is a page of the navigation.
type entry struct{ Name, Path string }

// navigation returns the pages of the navigation beside a page: those of the administration, or all
// others.
func navigation(v *View) []entry {
	var entries []entry
	for _, p := range table {
		if p.nav && v.Admin == (p.roles != "") && p.isFor(v.Self) {
			entries = append(entries, entry{p.name, p.path})
		}
	}
	return entries
}

// lastPage returns how many pages a list of the API has.
func lastPage(list map[string]any) int64 {
	size := max(integer(list["page_size"]), 1)
	return (integer(list["total"]) + size - 1) / size
}

// withQuery returns the URL of the page with another value of a parameter of its query.
func withQuery(v *View, name string, value any) string {
	path, raw, _ := strings.Cut(v.Here, "?")
	query, _ := url.ParseQuery(raw)
	query.Set(name, fmt.Sprint(value))
	query.Del("done")
	return path + "?" + query.Encode()
}

// queryOf returns the view for the form with the filter of a page, if another form of the page was
// sent: the filter is in the query of the page.
func queryOf(v *View) *View {
	if !v.Form.Has("do") {
		return v
	}
	other := *v
	_, raw, _ := strings.Cut(v.Here, "?")
	other.Form, _ = url.ParseQuery(raw)
	other.Fault = nil
	return &other
}

// formOf returns the view for one form of a page with several forms: the fault, and what was typed,
// are there if it is the form that was refused.
func formOf(v *View, action string) *View {
	if v.Fault != nil && v.Form.Get("do") == action {
		return v
	}
	other := *v
	other.Fault, other.Form = nil, nil
	return &other
}
