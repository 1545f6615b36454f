package modelgate_test

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/dustin/go-humanize"
)

const configurationPage = "docs/reference/configuration.md"

// configurationBlock is a section of the page with a table of words.
type configurationBlock struct {
	caddyfile string   // a Caddyfile with the block; %s is its content. Empty: the block accepts any word
	modules   []string // the modules with the fields of the column JSON
	bases     []string // the column JSON is relative to these paths
}

// configurationBlocks has the sections with a table of words by heading.
var configurationBlocks = func() map[string]configurationBlock {
	const app = "modelgate"
	site := func(text string) string { return ":80 {\n" + text + "\n}" }
	option := func(text string) string { return "{\nmodelgate {\n" + text + "\n}\n}" }
	within := func(text string, bases ...string) configurationBlock {
		return configurationBlock{option(text + " {\n%s\n}"), []string{app}, bases}
	}
	moduleBlock := func(module, text string) configurationBlock {
		return configurationBlock{option(text + " {\n%s\n}"), []string{module}, []string{""}}
	}
	blocks := map[string]configurationBlock{
		"Global option modelgate": {option("%s"), []string{app}, []string{""}},
		"storage badger":          moduleBlock("modelgate.storage.badger", "storage badger"),
		"storage postgres":        moduleBlock("modelgate.storage.postgres", "storage postgres"),
		"retention":               within("retention", "retention"),
		"limits":                  within("limits", "limits"),
		"format modelgate_redact": {"{\nlog {\nformat modelgate_redact {\n%s\n}\n}\n}", []string{"caddy.logging.encoders.modelgate_redact"}, []string{""}},
		"format modelgate_demo":   {"{\nlog {\nformat modelgate_demo {\n%s\n}\n}\n}", []string{"caddy.logging.encoders.modelgate_demo"}, []string{""}},
		"price":                   within("price a", "prices[]"),
		"above":                   {option("price a {\nabove 5 {\n%s\n}\n}"), []string{app}, []string{"prices[].above[]", "prices[].tier[].above[]"}},
		"tier":                    {option("price a {\ntier fast {\n%s\n}\n}"), []string{app}, []string{"prices[].tier[]"}},
		"plan":                    within("plan 1 a", "plans[]"),
		"topup":                   within("topup", "topup"),
		"family":                  within("family A a", "families[]"),
		"variant":                 {option("family A a {\nvariant b {\n%s\n}\n}"), []string{app}, []string{"families[].variants[]"}},
		"Cells of a family": {
			option("family A a {\nvideo {\n%s\n}\n}"), []string{app},
			[]string{"families[].video", "families[].image", "families[].variants[].video", "families[].variants[].image"},
		},
		"backend":                      within("backend a", "backends[]"),
		"callback":                     within("callback", "callback"),
		"media":                        within("media", "media"),
		"media s3":                     {option("media {\ns3 {\n%s\n}\n}"), []string{app}, []string{"media.s3"}},
		"session":                      within("session", "session"),
		"verification":                 within("verification", "verification"),
		"passkey":                      within("passkey", "passkey"),
		"mail":                         within("mail", "mail"),
		"modelgate_model":              {"", []string{"http.matchers.modelgate_model"}, []string{""}},
		"lb_policy modelgate_affinity": {"", []string{"http.reverse_proxy.selection_policies.modelgate_affinity"}, []string{""}},
		"modelgate_messages, modelgate_completions and modelgate_openai": {
			"", []string{"http.handlers.modelgate_messages", "http.handlers.modelgate_completions", "http.handlers.modelgate_openai"}, []string{""},
		},
		"modelgate_console": {site("modelgate_console {\n%s\n}"), []string{"http.handlers.modelgate_console"}, []string{""}},
		"modelgate_demo":    {site("modelgate_demo {\n%s\n}"), []string{"http.handlers.modelgate_demo"}, []string{""}},
	}
	for _, name := range []string{"stripe", "epay", "demo"} {
		blocks["payment "+name] = moduleBlock("modelgate.payments."+name, "payment "+name)
	}
	for _, name := range []string{"openai", "platform", "generations", "replicate", "fal", "vod", "demo"} {
		blocks["adapter "+name] = configurationBlock{
			option("backend a {\nadapter " + name + " {\n%s\n}\n}"), []string{"modelgate.backends." + name}, []string{""},
		}
	}
	return blocks
}()

// sectionsOf returns the sections of a Markdown text, by their headings without backquotes.
func sectionsOf(text string) map[string]string {
	sections := make(map[string]string)
	heads := heading.FindAllStringSubmatchIndex(fenced.ReplaceAllStringFunc(text, func(code string) string {
		return strings.ReplaceAll(code, "#", "-")
	}), -1)
	for i, head := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		sections[strings.ReplaceAll(text[head[2]:head[3]], "`", "")] = text[head[1]:end]
	}
	return sections
}

// rowsOf returns the cells of the table whose header begins with these words, without its
// first two lines. A `\|` is a `|` of the text.
func rowsOf(section string, header ...string) (rows [][]string) {
	begin := "| " + strings.Join(header, " | ") + " |"
	_, table, found := strings.Cut("\n"+section, "\n"+begin)
	if !found {
		return nil
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00"), "|")
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 || strings.TrimSpace(line) == "" {
				break
			}
			continue // the rest of the header
		}
		if strings.HasPrefix(line, "|-") {
			continue
		}
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "\x00", "|")
		}
		rows = append(rows, cells[1:len(cells)-1])
	}
	return rows
}

// codesOf returns the inline code of a cell without backquotes.
func codesOf(cell string) (codes []string) {
	for _, code := range inlineCode.FindAllString(cell, -1) {
		codes = append(codes, strings.Trim(code, "`"))
	}
	return codes
}

// wordsOf returns the words of a block in a cell, without arguments.
func wordsOf(cell string) (words []string) {
	for _, code := range codesOf(cell) {
		if word := strings.Fields(code)[0]; !strings.HasPrefix(word, "<") && !strings.HasPrefix(word, "[") {
			words = append(words, word)
		}
	}
	return words
}

var listed = regexp.MustCompile(`(?:allowed:|there are) ([a-z0-9_, ]+)`)

// allowedIn returns the words that a block accepts. The parser lists them in the error for an
// unknown word.
func allowedIn(t *testing.T, caddyfile string) []string {
	t.Helper()
	text := fmt.Sprintf(caddyfile, "no_such_word")
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err == nil {
		t.Fatalf("adapted:\n%s", text)
	}
	found := listed.FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatalf("the error lists no words: %v", err)
	}
	words := strings.Split(strings.TrimSpace(strings.TrimSuffix(found[1], ", at ")), ", ")
	words = slices.DeleteFunc(words, func(word string) bool { return word == "" || strings.HasPrefix(word, "at ") })
	return slices.Sorted(slices.Values(words))
}

// TestTheReferenceHasEveryWordOfTheConfiguration compares the words in the tables of the page
// with the words that the parsers accept, in both directions.
func TestTheReferenceHasEveryWordOfTheConfiguration(t *testing.T) {
	t.Parallel()
	sections := sectionsOf(read(t, configurationPage))
	for heading, block := range configurationBlocks {
		section, there := sections[heading]
		rows := rowsOf(section, "Word", "JSON")
		if !there || len(rows) == 0 {
			t.Errorf("%s: the page has no such section with a table of words", heading)
			continue
		}
		var words []string
		for _, row := range rows {
			words = append(words, wordsOf(row[0])...)
		}
		for _, syntax := range codeOf(section, "text") {
			for line := range strings.Lines(syntax) {
				if inner, is := strings.CutPrefix(line, "\t"); is && inner[0] != '\t' && inner[0] != '<' && inner[0] != '}' && heading != "Global option modelgate" {
					if word := strings.Fields(inner)[0]; !slices.Contains(words, word) {
						t.Errorf("%s: the syntax has %s, the table does not", heading, word)
					}
				}
			}
		}
		if block.caddyfile == "" {
			continue
		}
		slices.Sort(words)
		if allowed := allowedIn(t, block.caddyfile); !slices.Equal(words, allowed) {
			t.Errorf("%s: the page has\n%v, the parser accepts\n%v", heading, words, allowed)
		}
	}
	for heading, section := range sections {
		if _, known := configurationBlocks[heading]; !known && len(rowsOf(section, "Word", "JSON")) > 0 {
			t.Errorf("%s: the section has a table of words but is not in configurationBlocks", heading)
		}
	}
}

// TestTheReferenceLinksNestedBlocks compares the words of the blocks in a cell of a family.
func TestTheReferenceLinksNestedBlocks(t *testing.T) {
	t.Parallel()
	documented := make(map[string][]string)
	for _, row := range rowsOf(sectionsOf(read(t, configurationPage))["Blocks of cells"], "Word", "Blocks") {
		for _, block := range codesOf(row[1]) {
			documented[block] = append(documented[block], wordsOf(row[0])...)
		}
	}
	for block, cell := range map[string]string{
		"duration": "video {\nduration 5 {\n%s\n}\n}", "count": "image {\ncount 1 {\n%s\n}\n}",
		"resolution": "video {\nresolution 1K {\n%s\n}\n}", "aspect_ratio": "video {\naspect_ratio 1:1 {\n%s\n}\n}",
	} {
		slices.Sort(documented[block])
		if allowed := allowedIn(t, "{\nmodelgate {\nfamily A a {\n"+cell+"\n}\n}\n}"); !slices.Equal(documented[block], allowed) {
			t.Errorf("%s: the page has %v, the parser accepts %v", block, documented[block], allowed)
		}
	}
}

var (
	textType    = reflect.TypeFor[encoding.TextUnmarshaler]()
	messageType = reflect.TypeFor[json.RawMessage]()
)

// TestTheReferenceHasTheMinimumFreeSpace provisions the store with the minimum of the page and
// with one byte less.
func TestTheReferenceHasTheMinimumFreeSpace(t *testing.T) {
	t.Parallel()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	found := regexp.MustCompile("`(\\d+MiB)` with `(\\w+)`").FindAllStringSubmatch(sectionsOf(read(t, configurationPage))["storage badger"], -1)
	if len(found) != 3 {
		t.Fatalf("the page has %v", found)
	}
	for _, minimum := range found {
		size, err := humanize.ParseBytes(minimum[1])
		if err != nil {
			t.Fatal(err)
		}
		for short := range uint64(2) {
			_, err := ctx.LoadModuleByID("modelgate.storage.badger", json.RawMessage(fmt.Sprintf(`{"memory":%q,"min_free":%d}`, minimum[2], size-short)))
			if (err != nil) != (short == 1) {
				t.Errorf("memory %s with %s less %d: %v", minimum[2], minimum[1], short, err)
			}
		}
	}
}

// TestTheReferenceHasTheNamesOfInputs compares the fields that `input` of an adapter accepts.
func TestTheReferenceHasTheNamesOfInputs(t *testing.T) {
	t.Parallel()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	_, err := ctx.LoadModuleByID("modelgate.backends.fal", json.RawMessage(`{"key":"a","models":{"video-a":"b/c"},"inputs":{"no_such_word":"x"}}`))
	if err == nil {
		t.Fatal("an unknown field was accepted")
	}
	_, list, _ := strings.Cut(err.Error(), "allowed: ")
	want := regexp.MustCompile(`[a-z_.]+(?:<name>)?`).FindAllString(strings.ReplaceAll(list, " and ", ", "), -1)
	var have []string
	for _, row := range rowsOf(sectionsOf(read(t, configurationPage))["Names of inputs"], "Part of the task") {
		have = append(have, codesOf(row[1])...)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the page has\n%v, the code\n%v", have, want)
	}
}
