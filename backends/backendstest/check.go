package backendstest

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/backends"
)

var (
	states = []backends.State{backends.Queued, backends.Running, backends.Succeeded, backends.Failed, backends.Unknown}
	kinds  = []backends.Kind{backends.Refused, backends.Busy, backends.Unconfirmed, backends.Gone}
	types  = []backends.MediaType{backends.ImageFile, backends.VideoFile}

	reasons = []backends.Reason{
		backends.ContentRejected, backends.InvalidInput, backends.UpstreamBusy, backends.ModelFailed,
		backends.TaskTimeout, backends.TaskCancelled, backends.UpstreamError,
	}
)

// longestWait is the maximum RetryAfter that an adapter may return.
const longestWait = time.Hour

// CheckStatus checks what is true of every status. secret must not occur in it.
func CheckStatus(t testing.TB, s backends.Status, secret string) {
	t.Helper()
	if !slices.Contains(states, s.State) {
		t.Errorf("the state %q is unknown", s.State)
	}
	if s.Progress < 0 || s.Progress > 100 {
		t.Errorf("progress is %d", s.Progress)
	}
	if (len(s.Results) > 0) != (s.State == backends.Succeeded) {
		t.Errorf("%s with %d results", s.State, len(s.Results))
	}
	if (s.Failure != nil) != (s.State == backends.Failed) {
		t.Errorf("%s with failure %v", s.State, s.Failure)
	}
	if s.RetryAfter < 0 || s.RetryAfter > longestWait {
		t.Errorf("RetryAfter is %s", s.RetryAfter)
	}
	for _, r := range s.Results {
		if u, err := url.Parse(r.URL); r.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
			t.Errorf("the result is at %q", r.URL)
		}
		if !slices.Contains(types, r.Type) {
			t.Errorf("a result of type %q", r.Type)
		}
		if r.Width < 0 || r.Height < 0 || r.Duration < 0 || math.IsNaN(r.Duration) || math.IsInf(r.Duration, 0) {
			t.Errorf("a result of %d × %d, %g s", r.Width, r.Height, r.Duration)
		}
		checkText(t, "format", r.Format, secret)
	}
	if f := s.Failure; f != nil {
		if !slices.Contains(reasons, f.Reason) {
			t.Errorf("the reason %q is unknown", f.Reason)
		}
		if f.Message == "" {
			t.Error("a failure without a message")
		}
		checkText(t, "message", f.Message, secret)
		checkText(t, "detail", f.Detail, secret)
	}
	checkText(t, "word", s.Word, secret)
	checkText(t, "cost", s.Cost.Amount+s.Cost.Unit, secret)
}

// CheckError checks what is true of every [backends.Error] and returns it. It
// returns nil if err is not one. secret must not occur in it.
func CheckError(t testing.TB, err error, secret string) *backends.Error {
	t.Helper()
	e, ok := errors.AsType[*backends.Error](err)
	if !ok {
		return nil
	}
	if !slices.Contains(kinds, e.Kind) {
		t.Errorf("the kind %q is unknown", e.Kind)
	}
	if !slices.Contains(reasons, e.Reason) {
		t.Errorf("the reason %q is unknown", e.Reason)
	}
	if e.Message == "" {
		t.Error("an error without a message")
	}
	if e.RetryAfter < 0 || e.RetryAfter > longestWait {
		t.Errorf("RetryAfter is %s", e.RetryAfter)
	}
	checkText(t, "message", e.Message, secret)
	checkText(t, "detail", e.Detail, secret)
	checkText(t, "code", e.Code, secret)
	if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, secret) && secret != "" {
		t.Errorf("the error prints the credential: %s", text)
	}
	return e
}

// checkText checks the length, encoding and content of a text from a service.
func checkText(t testing.TB, what, text, secret string) {
	t.Helper()
	if len(text) > backends.MaxText || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("the %s is %d bytes of %.80q", what, len(text), text)
	}
	if secret != "" && strings.Contains(text, secret) {
		t.Errorf("the %s contains the credential: %s", what, text)
	}
}
