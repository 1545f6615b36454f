package modelgate_test

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/dustin/go-humanize"
)

// fields has the paths in the JSON of a module: paths of values, and paths of objects and lists.
type fields struct{ values, holders map[string]bool }

// fieldsOf returns the fields of a type, by its struct tags.
func fieldsOf(of reflect.Type) fields {
	f := fields{map[string]bool{}, map[string]bool{"": true}}
	f.add(of, "")
	return f
}

func (f fields) add(of reflect.Type, path string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	own := strings.HasPrefix(of.PkgPath(), module)
	switch {
	case of.Kind() == reflect.Slice && of != messageType:
		element := of.Elem()
		for element.Kind() == reflect.Pointer {
			element = element.Elem()
		}
		if element == messageType || element.Kind() == reflect.Struct && !element.Implements(textType) &&
			!reflect.PointerTo(element).Implements(textType) && strings.HasPrefix(element.PkgPath(), module) {
			path += "[]"
		}
		if element == messageType {
			f.values[path] = true
			return
		}
		f.add(element, path)
	case of.Kind() == reflect.Struct && own && !reflect.PointerTo(of).Implements(textType):
		f.holders[path] = true
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Anonymous && name == "":
				f.add(field.Type, path)
			case field.IsExported() && name != "" && name != "-":
				f.add(field.Type, strings.TrimPrefix(path+"."+name, "."))
			}
		}
	default:
		f.values[path] = true
	}
}

// documentedFields returns the paths of the JSON of each module in the page.
func documentedFields(t *testing.T) map[string]map[string]bool {
	t.Helper()
	documented := make(map[string]map[string]bool)
	sections := sectionsOf(read(t, configurationPage))
	for heading, block := range configurationBlocks {
		section := sections[heading]
		for _, row := range rowsOf(section, "Word", "JSON") {
			names := codesOf(row[1])
			if row[1] == "the same names" {
				names = wordsOf(row[0])
			}
			for _, module := range block.modules {
				if documented[module] == nil {
					documented[module] = make(map[string]bool)
				}
				for _, base := range block.bases {
					for _, name := range names {
						documented[module][strings.TrimPrefix(base+"."+name, ".")] = true
					}
				}
			}
		}
		if heading == "price" { // the only field without a word
			documented["modelgate"]["prices[].image[].audio"] = strings.Contains(section, "`image[].audio`")
		}
	}
	return documented
}

// TestTheReferenceHasEveryModule compares the table of modules with those that are registered,
// and the column JSON of the tables with the fields of these modules.
func TestTheReferenceHasEveryModule(t *testing.T) {
	t.Parallel()
	listedModules := make(map[string]bool)
	for _, row := range rowsOf(sectionsOf(read(t, configurationPage))["Modules"], "Module ID") {
		listedModules[codesOf(row[0])[0]] = true
	}
	documented := documentedFields(t)
	for _, id := range caddy.Modules() {
		if !strings.Contains(id, "modelgate") {
			continue
		}
		if !listedModules[id] {
			t.Errorf("the page does not list the module %s", id)
		}
		delete(listedModules, id)
		if id == "http.reverse_proxy.transport.modelgate_call" {
			continue // only the gateway writes its configuration
		}
		info, err := caddy.GetModule(id)
		if err != nil {
			t.Fatal(err)
		}
		have := fieldsOf(reflect.TypeOf(info.New()))
		for _, path := range slices.Sorted(maps.Keys(have.values)) {
			if path != "" && !documented[id][path] {
				t.Errorf("%s: the page has no field %s", id, path)
			}
		}
		for _, path := range slices.Sorted(maps.Keys(documented[id])) {
			if !have.values[path] && !have.holders[path] {
				t.Errorf("%s: the field %s does not exist", id, path)
			}
		}
	}
	for id := range listedModules {
		t.Errorf("the module %s does not exist", id)
	}
}

// contains reports whether a value contains an object with these members.
func contains(value any, members map[string]any) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, func(element any) bool { return contains(element, members) })
	case map[string]any:
		equal := true
		for name, member := range members {
			equal = equal && reflect.DeepEqual(v[name], member)
		}
		return equal || slices.ContainsFunc(slices.Collect(maps.Values(v)), func(element any) bool { return contains(element, members) })
	}
	return false
}

// TestTheJSONOfTheReferenceMatchesTheAdapter adapts the Caddyfile of each section with JSON,
// and searches the result for that JSON.
func TestTheJSONOfTheReferenceMatchesTheAdapter(t *testing.T) {
	t.Parallel()
	shown := 0
	for heading, section := range sectionsOf(read(t, configurationPage)) {
		for _, text := range codeOf(section, "json") {
			shown++
			caddyfiles := codeOf(section, "caddyfile")
			var want map[string]any
			if err := json.Unmarshal([]byte(text), &want); err != nil || len(caddyfiles) != 1 {
				t.Fatalf("%s: %d Caddyfiles: %v", heading, len(caddyfiles), err)
			}
			adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfiles[0]), map[string]any{"filename": "Caddyfile"})
			if err != nil {
				t.Fatalf("%s: %v", heading, err)
			}
			var got any
			if err := json.Unmarshal(adapted, &got); err != nil {
				t.Fatal(err)
			}
			if !contains(got, want) {
				t.Errorf("%s: the adapted Caddyfile is\n%s", heading, adapted)
			}
		}
	}
	if shown < 15 {
		t.Errorf("only %d blocks of JSON were found", shown)
	}
}

// setElsewhere has the fields whose default is not set in the provisioned module.
var setElsewhere = []string{"storage", "media.path", "media.max_file", "media.s3.region", "passkey.origins", "mail.tls"}

// TestTheDefaultsOfTheReferenceMatchTheCode provisions modules without any configuration
// and compares their fields with the column Default.
func TestTheDefaultsOfTheReferenceMatchTheCode(t *testing.T) {
	t.Parallel()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	sections := sectionsOf(read(t, configurationPage))
	checked := 0
	for _, id := range []string{"modelgate", "modelgate.storage.badger", "modelgate.backends.demo", "modelgate.payments.demo"} {
		info, err := caddy.GetModule(id)
		if err != nil {
			t.Fatal(err)
		}
		module := info.New()
		if err := module.(caddy.Provisioner).Provision(ctx); err != nil {
			t.Fatal(err)
		}
		if cleaned, is := module.(caddy.CleanerUpper); is {
			defer func() { _ = cleaned.Cleanup() }()
		}
		text, err := json.Marshal(module)
		if err != nil {
			t.Fatal(err)
		}
		var config any
		if err := json.Unmarshal(text, &config); err != nil {
			t.Fatal(err)
		}
		for heading, block := range configurationBlocks {
			if block.modules[0] != id || strings.Contains(block.bases[0], "[]") {
				continue
			}
			for _, row := range rowsOf(sections[heading], "Word", "JSON", "Default") {
				names := codesOf(row[1])
				if len(names) != 1 || strings.Contains(names[0], "[]") || id == "modelgate.storage.badger" && names[0] == "path" {
					continue
				}
				field := strings.TrimPrefix(block.bases[0]+"."+names[0], ".")
				if slices.Contains(setElsewhere, field) {
					continue
				}
				have := at(config, field)
				if want, plain := defaultOf(row[2]); plain {
					checked++
					if !sameValue(have, want) {
						t.Errorf("%s: the default of %s is %v, the page says %s", heading, names[0], have, row[2])
					}
				}
			}
		}
	}
	if checked < 25 {
		t.Errorf("only %d defaults were compared", checked)
	}
}

// at returns the value at a path, or nil.
func at(value any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// defaultOf returns a default value; false if the cell only describes it.
func defaultOf(cell string) (string, bool) {
	if cell == "none" {
		return "", true
	}
	if number := strings.Trim(cell, "0123456789."); number == "" && cell != "" {
		return cell, true
	}
	codes := codesOf(cell)
	return strings.Trim(cell, "`"), len(codes) == 1 && cell == "`"+codes[0]+"`"
}

// sameValue compares a JSON value with its form in a Caddyfile.
func sameValue(have any, want string) bool {
	switch v := have.(type) {
	case nil:
		return want == "" || want == "off" || want == "false"
	case string:
		return v == want
	case bool:
		return strconv.FormatBool(v) == want
	case float64:
		if duration, err := caddy.ParseDuration(want); err == nil {
			return v == float64(duration)
		}
		size, err := humanize.ParseBytes(want)
		return err == nil && v == float64(size)
	}
	return false
}
