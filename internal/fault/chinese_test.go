package fault

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// consolePackages are the packages whose messages the console shows.
var consolePackages = []string{
	"internal/identity", "internal/identity/attempts", "internal/identity/factor", "internal/identity/password",
	"internal/billing", "internal/audit", "internal/bodymem", "internal/fault", "handlers/console", "handlers/reply",
}

// untranslated are formats whose arguments are parts of English sentences. In Chinese, such a
// fault has the general message of its code.
var untranslated = []string{"%v", "a callback address %v"}

// formatsInSource returns the constant formats of faults in all packages of the module, by
// package.
func formatsInSource(t *testing.T) map[string][]string {
	t.Helper()
	formats := make(map[string][]string)
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := ""
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				if folder == "internal/fault" {
					name = fun.Name
				}
			case *ast.SelectorExpr:
				if pkg, ok := fun.X.(*ast.Ident); ok && pkg.Name == "fault" || fun.Sel.Name == "WithMessage" {
					name = fun.Sel.Name
				}
			}
			if index, ok := map[string]int{"WithMessage": 0, "New": 1, "At": 2}[name]; ok && index < len(call.Args) {
				if text, ok := constant(call.Args[index]); ok {
					formats[folder] = append(formats[folder], text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return formats
}

// constant returns the text of a string literal, or of several joined by +.
func constant(expression ast.Expr) (string, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, okLeft := constant(e.X)
		right, okRight := constant(e.Y)
		return left + right, okLeft && okRight
	}
	return "", false
}

// verbs returns the verbs of a format, sorted by their argument index.
func verbs(format string) (list []string) {
	next := 1
	for _, found := range regexp.MustCompile(`%([.0-9+#]*)(?:\[(\d+)\])?([a-z%])`).FindAllStringSubmatch(format, -1) {
		if found[3] == "%" {
			continue
		}
		if found[2] != "" {
			next, _ = strconv.Atoi(found[2])
		}
		list = append(list, strconv.Itoa(next)+found[1]+found[3])
		next++
	}
	slices.Sort(list)
	return list
}

func TestEveryMessageOfTheConsoleIsInBothLanguages(t *testing.T) {
	t.Parallel()
	formats := formatsInSource(t)
	used := make(map[string]bool)
	for _, list := range formats {
		for _, format := range list {
			used[format] = true
		}
	}
	for _, folder := range consolePackages {
		if len(formats[folder]) == 0 {
			t.Errorf("%s has no messages", folder)
		}
		for _, format := range formats[folder] {
			if _, ok := chinese[format]; !ok && !slices.Contains(untranslated, format) {
				t.Errorf("%s: %q is not in the table chinese", folder, format)
			}
		}
	}
	for english, text := range chinese {
		if !used[english] {
			t.Errorf("no package has the message %q", english)
		}
		if got, want := verbs(text), verbs(english); !slices.Equal(got, want) {
			t.Errorf("%q has the verbs %q, its Chinese form %q", english, want, got)
		}
	}
	for _, code := range codesInSource(t) {
		if chineseCodes[code] == "" {
			t.Errorf("%s has no text in Chinese", code)
		}
	}
	for _, table := range []map[string]string{chinese, textsOf(chineseCodes)} {
		for english, text := range table {
			// Clients search the messages of /api/verify for 成功 (success).
			if !strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) }) || strings.Contains(text, "成功") {
				t.Errorf("the Chinese form of %q is %q", english, text)
			}
		}
	}
}

func textsOf(codes map[Code]string) map[string]string {
	texts := make(map[string]string, len(codes))
	for code, text := range codes {
		texts[string(code)] = text
	}
	return texts
}

type half struct{}

func (half) String() string  { return "half an hour" }
func (half) Chinese() string { return "半小时" }

func TestChinese(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault *Fault
		want  string
	}{
		{New(Conflict, "there is no plan %d", 7), "套餐 7 不存在"},
		{New(TooManyAttempts, "too many attempts: at most %d are allowed in %s", 5, half{}), "尝试次数过多：半小时内最多 5 次"},
		{At(InvalidParameter, "amount", "%v", "of English"), "参数无效：amount"},
		{New(Internal, "a message of no table"), "发生内部错误"},
		{New(Conflict, "the name %q is taken already", "验证").WithMessage("other"), "与当前状态冲突"},
		{At(MissingParameter, "code", "there is no plan %d", 7).WithMessage("other"), "缺少参数"},
	} {
		english := c.fault.Message
		got := c.fault.Chinese()
		if got.Message != c.want || got.Code != c.fault.Code || got.Status() != c.fault.Status() || c.fault.Message != english {
			t.Errorf("the Chinese form of %v is %v, want %q", c.fault, got, c.want)
		}
	}
}

func TestWithParamKeepsTheMessage(t *testing.T) {
	t.Parallel()
	f := At(MissingParameter, "password", "a password is required").After(1)
	g := f.WithParam("new_password")
	if g.Param != "new_password" || g.Message != f.Message || g.Chinese().Message != "缺少密码" || g.RetryAfter != 1 || f.Param != "password" {
		t.Errorf("WithParam of %+v returned %+v", f, g)
	}
}
