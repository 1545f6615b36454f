package modelgate_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// filesOf returns the paths of the files with an extension, relative to the root of the
// repository. It skips testdata, node_modules and folders that begin with a dot.
func filesOf(t *testing.T, extension string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, entry os.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || name == "node_modules" || len(name) > 1 && name[0] == '.'):
			return filepath.SkipDir
		case !entry.IsDir() && strings.HasSuffix(name, extension):
			files = append(files, filepath.ToSlash(file))
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files with %s: %v", len(files), extension, err)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents returns the anchors of each Markdown file, by its path.
func documents(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, file := range filesOf(t, ".md") {
		all[file] = anchorsOf(read(t, file))
	}
	return all
}

var (
	fenced     = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	identified = regexp.MustCompile(`<a id="([^"]+)">`)
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchorsOf returns the anchors that GitHub creates for the headings of a text, and the
// anchors in the text.
func anchorsOf(text string) (anchors []string) {
	text = fenced.ReplaceAllString(text, "")
	for _, found := range identified.FindAllStringSubmatch(text, -1) {
		anchors = append(anchors, found[1])
	}
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		title := linkText.ReplaceAllString(found[1], "$1")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))
		for n, base := 1, anchor; slices.Contains(anchors, anchor); n++ {
			anchor = base + "-" + strconv.Itoa(n)
		}
		anchors = append(anchors, anchor)
	}
	return anchors
}

// checkTarget returns the error of a link in the file self of the folder dir, or an empty
// text.
func checkTarget(docs map[string][]string, dir, self, target string) string {
	file, anchor, _ := strings.Cut(target, "#")
	if file == "" {
		file = self
	} else {
		file = path.Join(dir, file)
	}
	if _, err := os.Stat(filepath.FromSlash(file)); err != nil {
		return fmt.Sprintf("%s: the file does not exist", target)
	}
	if anchors, is := docs[file]; is && anchor != "" && !slices.Contains(anchors, anchor) {
		return fmt.Sprintf("%s: the anchor is not in %s", target, file)
	}
	return ""
}

// TestLinksOfTheDocsExist follows every relative link in every Markdown file.
func TestLinksOfTheDocsExist(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	for file := range docs {
		text := inlineCode.ReplaceAllString(fenced.ReplaceAllString(read(t, file), ""), "")
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target := found[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if wrong := checkTarget(docs, path.Dir(file), file, target); wrong != "" {
				t.Errorf("%s: %s", file, wrong)
			}
		}
	}
}

// cited matches a Markdown file of this repository in a comment, with an optional anchor. A
// name after another word and a slash is part of an address.
var cited = regexp.MustCompile(`(?:^|[\s("'\[])((?:\.\./|[a-z0-9_-]+/)*[A-Za-z0-9_-]+\.md(?:#[a-z0-9_-]+)?)`)

// commentsOf returns the comments of a Go file, with the lines of each comment joined.
func commentsOf(text string) string {
	var comments strings.Builder
	for line := range strings.Lines(text) {
		at := strings.Index(line, "//")
		if at < 0 {
			comments.WriteByte('\n')
			continue
		}
		comments.WriteString(" " + strings.TrimSpace(line[at+2:]))
	}
	return comments.String()
}

// TestCitationsInTheCodeExist checks every Markdown file that a comment names, relative to
// the root of the repository or to the folder of the comment.
func TestCitationsInTheCodeExist(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	found := 0
	for _, file := range filesOf(t, ".go") {
		for _, match := range cited.FindAllStringSubmatch(commentsOf(read(t, file)), -1) {
			found++
			fromRoot := checkTarget(docs, ".", "", match[1])
			if fromRoot != "" && checkTarget(docs, path.Dir(file), "", match[1]) != "" {
				t.Errorf("%s: %s", file, fromRoot)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d citations were found", found)
	}
}

// absent matches words that cite a document outside the repository.
var absent = regexp.MustCompile(`(?i)\bservice document\b|\bsecurity contract\b|\b(?:interface|design),? sections? [0-9]|` +
	`\bsections? [0-9][0-9., and]*of the (?:interface|design)\b|\bas the (?:interface|design) (?:says|fixes|has it)\b`)

// TestNoCommentCitesAnAbsentDocument searches all comments for such words.
func TestNoCommentCitesAnAbsentDocument(t *testing.T) {
	t.Parallel()
	for _, file := range filesOf(t, ".go") {
		if file == "docs_links_test.go" {
			continue
		}
		for _, words := range absent.FindAllString(commentsOf(read(t, file)), -1) {
			t.Errorf("%s cites %q, which is not in the repository; see docs/reference", file, words)
		}
	}
}

// TestTheReferenceHasEveryErrorCode compares the table of docs/reference/http.md with
// the codes of package fault.
func TestTheReferenceHasEveryErrorCode(t *testing.T) {
	t.Parallel()
	documented := make(map[string]int)
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| ([0-9]{3}) \\|").FindAllStringSubmatch(read(t, "docs/reference/http.md"), -1) {
		documented[row[1]], _ = strconv.Atoi(row[2])
	}
	for _, code := range regexp.MustCompile(`(?m)^\s+\w+\s+Code = "([A-Z_]+)"`).FindAllStringSubmatch(read(t, "internal/fault/fault.go"), -1) {
		status := fault.New(fault.Code(code[1]), "").Status()
		if documented[code[1]] != status {
			t.Errorf("%s has the status %d, the reference says %d", code[1], status, documented[code[1]])
		}
		delete(documented, code[1])
	}
	for code := range documented {
		t.Errorf("the code %s does not exist", code)
	}
}

// TestTheTestsOfTheSecurityRulesExist searches the packages for the tests that
// docs/reference/security.md names.
func TestTheTestsOfTheSecurityRulesExist(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/reference/security.md")
	named := regexp.MustCompile("`(?:([a-z0-9_/]+)\\.)?((?:Test|Fuzz)[A-Z]\\w+)`").FindAllStringSubmatch(text, -1)
	tests := make(map[string]string) // texts of the tests by folder
	for _, name := range named {
		dir := path.Clean(name[1])
		if tests[dir] == "" {
			files, err := filepath.Glob(filepath.FromSlash(dir) + "/*_test.go")
			if err != nil || len(files) == 0 {
				t.Fatalf("%s has no tests: %v", dir, err)
			}
			for _, file := range files {
				tests[dir] += read(t, filepath.ToSlash(file))
			}
		}
		if !strings.Contains(tests[dir], "\nfunc "+name[2]+"(") {
			t.Errorf("%s has no %s", dir, name[2])
		}
	}
	rules := regexp.MustCompile(`(?m)^\*\*[A-Z][0-9]+ `).FindAllString(text, -1)
	if tested := strings.Count(text, "\nTests: `"); len(rules) < 40 || tested != len(rules) {
		t.Errorf("%d rules, of which %d have tests", len(rules), tested)
	}
}

// wide matches a character that has two columns.
var wide = regexp.MustCompile(`[\p{Han}，。：；、（）]`)

// TestTheDocsHaveShortLines limits the lines of the README and the columns of prose in all
// documents. Tables and code blocks may be wider. A Chinese character has two columns.
func TestTheDocsHaveShortLines(t *testing.T) {
	t.Parallel()
	if lines := strings.Count(read(t, "README.md"), "\n"); lines > 200 {
		t.Errorf("the README has %d lines; allowed: 200", lines)
	}
	for _, file := range filesOf(t, ".md") {
		for line := range strings.Lines(fenced.ReplaceAllString(read(t, file), "")) {
			line = strings.TrimSuffix(line, "\n")
			n := len([]rune(line)) + len(wide.FindAllString(line, -1))
			if n > 100 && !strings.HasPrefix(strings.TrimSpace(line), "|") {
				t.Errorf("%s: a line has %d columns; allowed: 100: %s", file, n, line)
			}
		}
	}
}

// TestBothREADMEsAreEqual compares the parts that do not depend on the language: levels of
// headings, code blocks, code in tables, and targets of links.
func TestBothREADMEsAreEqual(t *testing.T) {
	t.Parallel()
	skeleton := func(file string) (parts []string) {
		text := read(t, file)
		parts = append(parts, fenced.FindAllString(text, -1)...)
		text = fenced.ReplaceAllString(text, "")
		for _, found := range regexp.MustCompile(`(?m)^(#+) `).FindAllStringSubmatch(text, -1) {
			parts = append(parts, found[1])
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "|") {
				parts = append(parts, strings.Join(inlineCode.FindAllString(line, -1), " "))
			}
		}
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(found[1], "README") {
				parts = append(parts, found[1])
			}
		}
		return parts
	}
	english, chinese := skeleton("README.md"), skeleton("README.zh.md")
	for n := range max(len(english), len(chinese)) {
		if n >= len(english) || n >= len(chinese) || english[n] != chinese[n] {
			t.Fatalf("part %d differs: README.md has %q, README.zh.md has %q", n, english[min(n, len(english)):min(n+1, len(english))], chinese[min(n, len(chinese)):min(n+1, len(chinese))])
		}
	}
	if len(english) < 40 {
		t.Errorf("only %d parts were compared", len(english))
	}
}
