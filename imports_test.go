package modelgate_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-modelgate/modelgate"
)

const module = "github.com/caddy-modelgate/modelgate"

// layers lists the packages of this module that a package may import, and whether it may
// import Caddy. The first row with its folder applies. A package imports only lower layers;
// backends, payments and stores import Caddy to register themselves.
var layers = []struct {
	folder string
	may    []string
	caddy  bool
}{
	{".", []string{"backends", "caddymodule", "handlers", "payments", "storage/badger", "storage/postgres", "transport"}, false},
	{"cmd/caddy", []string{"."}, true},
	{"handlers/reply", []string{"internal/bodymem", "internal/dialect", "internal/fault", "internal/requestid"}, true},
	{"handlers/auth", []string{"handlers/reply", "caddymodule", "internal", "money"}, true},
	{"handlers/demo", nil, true},
	{"handlers/console/pages", []string{"handlers/reply", "internal/fault", "internal/identity/credential", "internal/usage", "docs", "money"}, false},
	{"handlers/console", []string{"handlers/console/pages", "handlers/auth", "handlers/reply", "caddymodule", "internal", "money", "payments", "settings"}, true},
	{"handlers/docs", []string{"handlers/reply", "caddymodule", "docs", "internal"}, true},
	{"handlers/tasks", []string{"handlers/auth", "handlers/reply", "caddymodule", "internal", "money", "backends"}, true},
	{"handlers/call", []string{"handlers/auth", "handlers/reply", "caddymodule", "internal", "money", "transport"}, true},
	{"handlers", []string{"handlers/auth", "handlers/reply", "caddymodule", "internal", "money"}, true},
	{"caddymodule/adminapi", []string{"caddymodule", "internal", "money", "storage", "backends"}, true},
	{"caddymodule/cli", []string{"caddymodule", "internal", "money", "storage"}, true},
	{"caddymodule/demo", []string{"caddymodule", "internal", "money", "settings"}, true},
	{"caddymodule/doctor", []string{"caddymodule", "internal", "money", "payments"}, true},
	{"caddymodule/starter", nil, false},
	{"caddymodule/redactlog", []string{"internal", "settings"}, true},
	{"caddymodule/metrics", []string{"internal", "money", "storage", "backends"}, false},
	{"caddymodule", []string{"caddymodule/metrics", "internal", "money", "storage", "payments", "backends", "settings"}, true},
	{"internal/gatetest", []string{".", "backends", "caddymodule", "handlers", "internal", "money", "storage"}, true}, // only for tests
	{"docs", nil, false},
	{"money", nil, false},
	{"internal/ledger/journal", []string{"internal/fault", "internal/usage", "money", "storage"}, false},
	{"internal/ledger/verify", []string{"internal/ledger/journal", "internal/multiset", "internal/usage", "money", "storage"}, false},
	{"internal/task/record", []string{"internal/audit", "internal/catalog", "internal/fault", "internal/ledger", "internal/ledger/journal", "internal/query", "money", "storage", "backends"}, false},
	{"internal/task/transition", []string{"internal/task/record", "internal/audit", "internal/catalog", "internal/ledger", "internal/ledger/journal", "money", "storage", "backends"}, false},
	{"internal/task/callback", []string{"internal/task/record", "internal/audit", "internal/fault", "storage"}, false},
	{"internal/task/verify", []string{"internal/task/record", "internal/task/transition", "internal/ledger", "internal/ledger/journal", "internal/multiset", "money", "storage"}, false},
	{"internal/identity/attempts", []string{"internal/fault", "storage"}, false},
	{"internal/identity/credential", nil, false},
	{"internal/identity/password", []string{"internal/fault", "internal/limit"}, false},
	{"internal/identity/reseal", []string{"internal/fault", "internal/seal", "storage"}, false},
	{"internal/identity/factor", []string{
		"internal/audit", "internal/fault", "internal/identity/attempts", "internal/identity/credential", "internal/identity/reseal",
		"internal/requestid", "internal/seal", "storage",
	}, false},
	{"internal/mail/mailtest", nil, false}, // only for tests
	{"internal/mail", nil, false},
	{"internal", []string{"internal", "money", "storage", "payments", "backends"}, false},
	{"backends/demo/film", nil, false},
	{"backends/backendstest", []string{"backends"}, false},
	{"backends/wire", []string{"backends", "settings"}, false},
	{"backends", []string{"backends", "internal/egress", "settings"}, true},
	{"payments", []string{"payments", "settings", "money"}, true},
	{"settings", nil, true},
	{"transport", nil, true}, // any Caddy may use it
	{"storage/backup", nil, false},
	{"storage/badger", []string{"storage", "settings"}, true},
	{"storage/postgres/postgrestest", nil, false}, // only for tests
	{"storage/postgres", []string{"storage", "settings"}, true},
	{"storage", []string{"storage"}, false},
}

func TestPackagesImportOnlyLowerLayers(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		folder := folderOf(p.ImportPath)
		row := slices.IndexFunc(layers, func(r struct {
			folder string
			may    []string
			caddy  bool
		},
		) bool {
			return within(folder, r.folder)
		})
		if row < 0 {
			t.Errorf("%s has no row in the table layers", folder)
			continue
		}
		for _, imported := range p.Imports {
			switch {
			case strings.HasPrefix(imported, "github.com/caddyserver/"):
				if !layers[row].caddy {
					t.Errorf("%s must not import Caddy: %s", folder, imported)
				}
			case strings.HasPrefix(imported, "github.com/dgraph-io/"):
				if folder != "storage/badger" {
					t.Errorf("%s must not import Badger: %s", folder, imported)
				}
			case strings.HasPrefix(imported, "github.com/jackc/"):
				if folder != "storage/postgres" {
					t.Errorf("%s must not import pgx: %s", folder, imported)
				}
			case imported == module || strings.HasPrefix(imported, module+"/"):
				target := folderOf(imported)
				allowed := slices.ContainsFunc(layers[row].may, func(may string) bool { return within(target, may) })
				if !allowed || (target == "storage/badger" || target == "storage/postgres") && folder != "." {
					t.Errorf("%s must not import %s", folder, target)
				}
			}
		}
	}
}

// TestTheArchitectureNamesEveryPackage compares the table of packages in
// ARCHITECTURE.md with the packages of the module, in both directions.
func TestTheArchitectureNamesEveryPackage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Packages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for line := range strings.Lines(section) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			for n, part := range strings.Split(cell, "`") {
				if n%2 == 1 && !strings.HasSuffix(part, ".go") {
					named[part] = true
				}
			}
		}
	}
	for _, p := range packages(t) {
		folder := folderOf(p.ImportPath)
		if !named[folder] {
			t.Errorf("ARCHITECTURE.md does not name %s", folder)
		}
		delete(named, folder)
	}
	for folder := range named {
		t.Errorf("ARCHITECTURE.md names %s, which is not a package", folder)
	}
}

// within reports whether folder is root or below it. The root folder of the module contains
// only itself.
func within(folder, root string) bool {
	return folder == root || root != "." && strings.HasPrefix(folder, root+"/")
}

func folderOf(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p goPackage
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// build is the content of xcaddy.json: the keys of xcaddy's Builder, and the modules and
// directives of the build.
type build struct {
	CaddyVersion string `json:"caddy_version"`
	Plugins      []struct {
		ModulePath string `json:"module_path"`
	} `json:"plugins"`
	Modules    []string `json:"modules"`
	Directives []string `json:"directives"`
}

func readBuild(t *testing.T) build {
	t.Helper()
	raw, err := os.ReadFile("xcaddy.json")
	if err != nil {
		t.Fatal(err)
	}
	var b build
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestXcaddyJSONMatchesTheBuild(t *testing.T) {
	t.Parallel()
	b := readBuild(t)
	if len(b.Plugins) != 1 || b.Plugins[0].ModulePath != module {
		t.Errorf("plugins are %v, want only this module", b.Plugins)
	}
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "github.com/caddyserver/caddy/v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(version)); got != b.CaddyVersion {
		t.Errorf("caddy_version is %s, go.mod has %s", b.CaddyVersion, got)
	}
	var registered []string
	for _, id := range caddy.Modules() {
		if strings.Contains(id, "modelgate") {
			registered = append(registered, id)
		}
	}
	slices.Sort(registered)
	if !slices.Equal(registered, b.Modules) {
		t.Errorf("the modules are\n%q, the registered modules are\n%q", b.Modules, registered)
	}
	for _, directive := range b.Directives {
		// An unknown or unordered directive is refused by Caddy. A known directive refuses
		// the nonsense itself.
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(":80 {\n\t"+directive+" {\n\t\tnonsense\n\t}\n}\n"), nil)
		if err == nil || strings.Contains(err.Error(), "directive: "+directive) || strings.Contains(err.Error(), "not ordered") {
			t.Errorf("directive %s: %v", directive, err)
		}
	}
}

func TestTheModuleBuildsLikeWithXcaddy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a whole Caddy")
	}
	b := readBuild(t)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("main.go", `package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "`+b.Plugins[0].ModulePath+`"
)

func main() { caddycmd.Main() }
`)
	// The versions are those of go.mod, because a test must not resolve them over the
	// network as xcaddy does.
	own, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, requirements, _ := strings.Cut(string(own), "\n\n")
	write("go.mod", "module caddy\n\n"+requirements+"\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+here+"\n")
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	write("go.sum", string(sums))

	binary := filepath.Join(dir, "caddy.exe")
	compile := exec.Command("go", "build", "-mod=mod", "-o", binary, ".")
	compile.Dir = dir
	compile.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off", "GOPROXY=off")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(binary, "list-modules").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, id := range b.Modules {
		if !strings.Contains(string(out), id+"\n") {
			t.Errorf("the build has no module %s", id)
		}
	}
}

func TestTheExampleAdapts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Caddyfile.example"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt(text, map[string]any{"filename": name})
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s: %v %v", name, err, warnings)
		}
		if !bytes.Contains(config, []byte(`"format":"modelgate_redact"`)) {
			t.Errorf("%s has no log with modelgate_redact", name)
		}
	}
}

// TestTheCaddyfilesOfTheDocsAdapt adapts every Caddyfile of the documents.
func TestTheCaddyfilesOfTheDocsAdapt(t *testing.T) {
	t.Parallel()
	found := 0
	for _, file := range filesOf(t, ".md") {
		if file == "docs/backends.md" { // its adapter is not in the build
			continue
		}
		for _, caddyfile := range codeOf(read(t, file), "caddyfile") {
			found++
			_, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": file})
			if err != nil || len(warnings) > 0 {
				t.Errorf("%s: %v %v\n%s", file, err, warnings, caddyfile)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d Caddyfiles were found", found)
	}
}

// codeOf returns the code blocks of a language.
func codeOf(text, language string) []string {
	blocks := strings.Split(text, "```"+language+"\n")[1:]
	for i, block := range blocks {
		blocks[i], _, _ = strings.Cut(block, "```")
	}
	return blocks
}

// FuzzBlocks parses any text as blocks of modelgate. The text is adapted or refused; the
// process never ends.
func FuzzBlocks(f *testing.F) {
	f.Add("storage badger /x {\n\tmemory small\n}\nlimits {\n\tping off\n}", "models a\n@m modelgate_model b*\nreverse_proxy @m x:1")
	f.Add("version_header x-version", "modelgate_demo {\n\tpace 1ms\n}")
	f.Add("family C vidu-* {\n\tvideo {\n\t\tduration 1-10 {\n\t\t\tdefault 5\n\t\t}\n\t}\n}\nbackend a {\n\tmodels vidu-*\n\tadapter demo\n}\ndefault_model vidu-1", "respond ok")
	f.Add("callback {\n\turl https://x.example\n\tsecret {env.X}\n\tallow 10.0.0.0/8:443\n}\nmedia off\nretention {\n\ttasks 9d\n}", "respond ok")
	f.Add("media {\n\tpath /x\n\tmax_file 1GiB\n\ts3 {\n\t\tpath_style\n\t}\n}", "respond ok")
	f.Add("limits {", "models")
	f.Add("", "respond `{`\nhandle {\n}\nmodels \"x\ny\"")
	f.Fuzz(func(t *testing.T, options, block string) {
		if strings.Contains(options+block, "import") {
			t.Skip("reads files")
		}
		text := "{\nmodelgate {\n" + options + "\n}\n}\n:80 {\nmodelgate_messages {\n" + block + "\n}\n}\n"
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
		if err == nil && strings.TrimSpace(block) == "" {
			t.Error("an empty block was accepted")
		}
	})
}
