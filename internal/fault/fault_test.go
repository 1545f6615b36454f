package fault

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// codesInSource returns the codes declared in fault.go.
func codesInSource(t *testing.T) []Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
			for _, value := range spec.Values {
				text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, Code(text))
			}
		}
		return true
	})
	return codes
}

func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	codes := codesInSource(t)
	if len(codes) < 19 || len(codes) != len(statuses) {
		t.Fatalf("%d codes are declared, %d have a status", len(codes), len(statuses))
	}
	upperSnake := regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`)
	for _, code := range codes {
		status, ok := statuses[code]
		if !ok || http.StatusText(status) == "" || status < 400 {
			t.Errorf("%s has the status %d", code, status)
		}
		if !upperSnake.MatchString(string(code)) {
			t.Errorf("%q is not in upper snake case", code)
		}
	}
}

func TestStatusesMatchTheDocumentation(t *testing.T) {
	t.Parallel()
	for code, want := range map[Code]int{
		InvalidJSON: 400, InvalidParameter: 400, MissingParameter: 400, InvalidModel: 400, ModelNotFound: 404, Unauthorized: 401, Forbidden: 403,
		RateLimited: 429, PayloadTooLarge: 413, UnsupportedMediaType: 415, RangeNotSatisfiable: 416, MethodNotAllowed: 405, NotFound: 404, Gone: 410,
		UpstreamRejected: 422, UpstreamUnavailable: 503, UpstreamTimeout: 504, StoreUnavailable: 503, Internal: 500,
		NotLoggedIn: 401, SecondFactorRequired: 401, UserDisabled: 403, CrossOrigin: 403, VerificationRequired: 403,
		VerificationExpired: 403, VerificationFailed: 403, NoFactor: 400, PasskeyNotCompleted: 400, TooManyAttempts: 429,

		TaskNotFound: 404, TaskNotCancellable: 409, DuplicateSessionID: 409, TooManyTasks: 429,
		"NOT_IN_THE_TABLE": 500,
	} {
		if got := New(code, "x").Status(); got != want {
			t.Errorf("%s is %d, want %d", code, got, want)
		}
	}
}

func TestErrorIncludesTheParam(t *testing.T) {
	t.Parallel()
	f := At(InvalidParameter, "messages[0].role", "must be %s", "a string")
	if got, want := f.Error(), "INVALID_PARAMETER (messages[0].role): must be a string"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := New(NotFound, "gone").Error(), "NOT_FOUND: gone"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var found *Fault
	if !errors.As(fmt.Errorf("step: %w", f), &found) || found != f {
		t.Error("errors.As does not find a wrapped fault")
	}
}

func TestAfterReturnsACopy(t *testing.T) {
	t.Parallel()
	f := New(RateLimited, "slowly")
	later := f.After(time.Minute)
	if f.RetryAfter != 0 || later.RetryAfter != time.Minute || later.Code != f.Code || later.Message != f.Message {
		t.Errorf("After of %+v returned %+v", f, later)
	}
}

func TestWithStatusReplacesTheStatusOfTheCode(t *testing.T) {
	t.Parallel()
	f := New(UpstreamUnavailable, "down")
	if g := f.WithStatus(http.StatusBadGateway); g.Status() != 502 || g.Code != f.Code || f.Status() != 503 {
		t.Errorf("the status is %d, and %d without WithStatus", g.Status(), f.Status())
	}
}
