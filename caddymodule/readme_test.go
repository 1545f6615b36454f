package caddymodule_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// readme returns the text of the guides and of the README.
func readme(t *testing.T) string {
	t.Helper()
	guides, err := filepath.Glob("../docs/guide/*.md")
	if err != nil || len(guides) == 0 {
		t.Fatalf("%d guides: %v", len(guides), err)
	}
	var all strings.Builder
	for _, file := range append(guides, "../README.md") {
		text, err := os.ReadFile(file) //nolint:gosec // a guide
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// codeOf returns the code blocks of a language.
func codeOf(text, language string) []string {
	blocks := strings.Split(text, "```"+language+"\n")[1:]
	for i, block := range blocks {
		blocks[i], _, _ = strings.Cut(block, "```")
	}
	return blocks
}

// docs returns the Markdown files of docs by path, and the README with the guides.
func docs(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{"README.md": readme(t)}
	err := filepath.WalkDir("../docs", func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".md" || entry.Name() == "backends.md" {
			return err // the adapter of docs/backends.md is not in the build
		}
		text, err := os.ReadFile(file)
		texts[file] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestTheConfigurationsOfTheDocsStart validates every Caddyfile of the README and of docs.
// Its secrets have the right form.
func TestTheConfigurationsOfTheDocsStart(t *testing.T) {
	parts, err := os.ReadFile("../xcaddy.json") // modules of a build, without those of tests
	if err != nil {
		t.Fatal(err)
	}
	adapters := make(map[string]bool) // true: the docs have an example
	for _, found := range regexp.MustCompile(`"modelgate\.backends\.(\w+)"`).FindAllStringSubmatch(string(parts), -1) {
		adapters[found[1]] = false
	}
	secret := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	texts := docs(t)
	for _, text := range texts {
		for _, found := range regexp.MustCompile(`\{env\.(\w+)\}`).FindAllStringSubmatch(text, -1) {
			t.Setenv(found[1], secret)
		}
		for _, found := range regexp.MustCompile(`\t\t\tadapter (\w+) \{\n`).FindAllStringSubmatch(text, -1) {
			adapters[found[1]] = true
		}
	}
	t.Setenv("VOD_SUB_APP_ID", "1500000000")
	t.Setenv("STRIPE_SECRET_KEY", "sk_test_1")
	t.Setenv("MODELGATE_SECRET", base64.StdEncoding.EncodeToString([]byte("a master key of thirty-two bytes")))
	for name, text := range texts {
		for _, caddyfile := range codeOf(text, "caddyfile") {
			file := filepath.Join(t.TempDir(), "Caddyfile")
			if err := os.WriteFile(file, []byte(caddyfile), 0o600); err != nil {
				t.Fatal(err)
			}
			if code, _, stderr := gatetest.Caddy(t, "", "validate", "--adapter", "caddyfile", "--config", file); code != 0 {
				t.Errorf("%s: %s\n%s", name, stderr, caddyfile)
			}
		}
	}
	for adapter, shown := range adapters {
		if !shown {
			t.Errorf("no page has an example of a backend with the adapter %s", adapter)
		}
	}
}

// TestTheDoctorAcceptsTheTasksOfTheGuide checks the Caddyfile of images and videos with
// the global options of the Caddyfile that serves calls.
func TestTheDoctorAcceptsTheTasksOfTheGuide(t *testing.T) {
	t.Parallel()
	var options, tasks string
	for _, caddyfile := range codeOf(readme(t), "caddyfile") {
		if before, _, serves := strings.Cut(caddyfile, "\tmodelgate {"); serves && strings.Contains(before, "grace_period") {
			options = before
		}
		if strings.Contains(caddyfile, "default_model") {
			tasks = strings.TrimPrefix(caddyfile, "{\n")
		}
	}
	file := filepath.Join(t.TempDir(), "Caddyfile")
	options = strings.Replace(options, "{\n", "{\n\tadmin unix//run/modelgate/admin.sock|0220\n", 1) // see the guide on production
	if err := os.WriteFile(file, []byte(options+tasks), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "doctor", "--config", file)
	if options == "" || tasks == "" || code != 0 || !strings.Contains(stdout, "nothing found") {
		t.Errorf("exit code %d: %s%s\n%s%s", code, stdout, stderr, options, tasks)
	}
}

// TestTheFamiliesOfTheGuideMatchTheCode compares both tables with the families of the
// code.
func TestTheFamiliesOfTheGuideMatchTheCode(t *testing.T) {
	t.Parallel()
	rows := make([]catalog.FamilyRow, 0, 6)
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		rows = append(rows, catalog.FamilyRow{Family: name, Models: []catalog.Pattern{catalog.Pattern(strings.ToLower(name) + "-*")}})
	}
	families, err := catalog.NewFamilies(rows)
	if err != nil {
		t.Fatal(err)
	}
	find := func(kind catalog.Kind, model string) catalog.Family {
		family, ok := families.Find(kind, model)
		if !ok {
			t.Fatalf("there is no family of %s", model)
		}
		return family
	}
	var table strings.Builder
	fmt.Fprintln(&table, "| Videos | `duration` | `resolution` | `aspect_ratio` | sound | `inputs` | takes besides |\n|---|---|---|---|---|---|---|")
	for _, row := range []struct{ name, model string }{{"A", "a-1"}, {"B", "b-1"}, {"C", "c-1"}, {"C, `q2*`", "c-q2"}, {"D", "d-1"}, {"E", "e-1"}, {"F", "f-1"}} {
		f := find(catalog.Video, row.model)
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %d | %s |\n", row.name, numbers(f.Duration), choice(f.Resolution), choice(f.AspectRatio), yes(f.Audio), f.MaxInputs, extras(f))
	}
	fmt.Fprintln(&table, "\n| Images | `resolution` | `aspect_ratio` | `inputs` | `count` |\n|---|---|---|---|---|")
	for _, row := range []struct{ name, model string }{{"A", "a-1"}, {"C", "c-1"}, {"B, D, E, F", "b-1"}, {"", "d-1"}, {"", "e-1"}, {"", "f-1"}} {
		f := find(catalog.Image, row.model)
		line := fmt.Sprintf("| %s | %s | %d | %s |\n", choice(f.Resolution), choice(f.AspectRatio), f.MaxInputs, numbers(f.Count))
		if row.name != "" {
			table.WriteString("| " + row.name + " ")
			table.WriteString(line)
		} else if !strings.HasSuffix(table.String(), line) {
			t.Errorf("images of %s differ from the row before: %s", row.model, line)
		}
	}
	if !strings.Contains(readme(t), table.String()) {
		t.Errorf("the guide does not have these tables:\n%s", &table)
	}
}

func numbers(ns catalog.Numbers) string {
	words := make([]string, len(ns.Allowed))
	for i, r := range ns.Allowed {
		words[i] = strconv.Itoa(r.Min)
		if r.Max != r.Min {
			words[i] += "–" + strconv.Itoa(r.Max)
		}
	}
	return fmt.Sprintf("%s (%d)", strings.Join(words, ", "), ns.Default)
}

func choice(c catalog.Choice) string {
	text := strings.Join(c.Allowed, ", ")
	switch {
	case c.Default != "" && c.TextOnly:
		text += " (" + c.Default + ", of text alone)"
	case c.Default != "":
		text += " (" + c.Default + ")"
	}
	return text
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// extras lists the fields that only some families accept.
func extras(f catalog.Family) string {
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	code := func(list []string) string { return "`" + strings.Join(list, "`, `") + "`" }
	references := make([]string, len(f.ReferenceType))
	for i, r := range f.ReferenceType {
		references[i] = string(r)
	}
	add(len(f.SceneType) > 0, "`scene_type` "+code(f.SceneType))
	add(len(references) > 0, "`reference_type` "+code(references))
	add(f.SubjectInputs.Taken(), "`subject_inputs`, each with its "+string(f.SubjectInputs))
	add(f.FrameInterpolate, "`frame_interpolate`")
	add(f.ObjectID, "`object_id`")
	add(f.VoiceID, "`voice_id`")
	add(f.Text, "`text` of inputs")
	return strings.Join(words, "; ")
}

// TestTheExampleReceiverVerifiesCallbacks runs the receiver of the guide.
func TestTheExampleReceiverVerifiesCallbacks(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	var function string
	for _, block := range codeOf(readme(t), "python") {
		if strings.Contains(block, "def genuine(") {
			function = block
		}
	}
	key := []byte("a key of twenty-four byte")
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	signed := func(at time.Time, key []byte, body string) map[string]string {
		seconds := strconv.FormatInt(at.Unix(), 10)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte("evt_1." + seconds + "." + body))
		return map[string]string{
			"webhook-id": "evt_1", "webhook-timestamp": seconds,
			"webhook-signature": "v1,AAAA v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
		}
	}
	const body = `{"type":"task.succeeded","data":{"session_context":"schön"}}`
	for name, c := range map[string]struct {
		headers map[string]string
		want    string
	}{
		"a callback":            {signed(time.Now(), key, body), "True"},
		"another secret":        {signed(time.Now(), key[1:], body), "False"},
		"another body":          {signed(time.Now(), key, "{}"), "False"},
		"an hour old":           {signed(time.Now().Add(-time.Hour), key, body), "False"},
		"an hour in the future": {signed(time.Now().Add(time.Hour), key, body), "False"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headers, err := json.Marshal(c.headers)
			if err != nil {
				t.Fatal(err)
			}
			program := exec.CommandContext(t.Context(), python, "-c",
				function+"\nimport json, sys\nprint(genuine(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3].encode()))", secret, string(headers), body)
			if out, err := program.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != c.want {
				t.Errorf("it prints %s, %v", out, err)
			}
		})
	}
}
