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

// maxRetryAfter is the maximum RetryAfter that an adapter may return.
const maxRetryAfter = time.Hour

// CheckStatus checks the rules for every status. It fails the test if the status
// contains secret.
func CheckStatus(t testing.TB, s backends.Status, secret string) {
	t.Helper()
	if !slices.Contains(states, s.State) {
		t.Errorf("the state %q is unknown", s.State)
	}
	if s.Progress < 0 || s.Progress > 100 {
		t.Errorf("the progress is %d", s.Progress)
	}
	if (len(s.Results) > 0) != (s.State == backends.Succeeded) {
		t.Errorf("the state is %s, with %d results", s.State, len(s.Results))
	}
	if (s.Failure != nil) != (s.State == backends.Failed) {
		t.Errorf("the state is %s, with the failure %v", s.State, s.Failure)
	}
	if s.RetryAfter < 0 || s.RetryAfter > maxRetryAfter {
		t.Errorf("RetryAfter is %s", s.RetryAfter)
	}
	for _, r := range s.Results {
		if u, err := url.Parse(r.URL); r.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
			t.Errorf("the URL of a result is %q", r.URL)
		}
		if !slices.Contains(types, r.Type) {
			t.Errorf("the type of a result is %q", r.Type)
		}
		if r.Width < 0 || r.Height < 0 || r.Duration < 0 || math.IsNaN(r.Duration) || math.IsInf(r.Duration, 0) {
			t.Errorf("a result has %d × %d pixels and %g seconds", r.Width, r.Height, r.Duration)
		}
		checkText(t, "format", r.Format, secret)
	}
	if f := s.Failure; f != nil {
		if !slices.Contains(reasons, f.Reason) {
			t.Errorf("the reason %q is unknown", f.Reason)
		}
		if f.Message == "" {
			t.Error("the failure has no message")
		}
		checkText(t, "message", f.Message, secret)
		checkText(t, "detail", f.Detail, secret)
	}
	checkText(t, "word", s.Word, secret)
	checkText(t, "cost", s.Cost.Amount+s.Cost.Unit, secret)
}

// CheckError checks the rules for every [backends.Error] and returns it. It
// returns nil if err is not one. It fails the test if the error contains secret.
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
		t.Error("the error has no message")
	}
	if e.RetryAfter < 0 || e.RetryAfter > maxRetryAfter {
		t.Errorf("RetryAfter is %s", e.RetryAfter)
	}
	checkText(t, "message", e.Message, secret)
	checkText(t, "detail", e.Detail, secret)
	checkText(t, "code", e.Code, secret)
	if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, secret) && secret != "" {
		t.Errorf("the printed error contains the credential: %s", text)
	}
	return e
}

// checkText checks the length, encoding and content of a text from a service.
func checkText(t testing.TB, field, text, secret string) {
	t.Helper()
	if len(text) > backends.MaxText || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("the %s has %d bytes or an invalid character: %.80q", field, len(text), text)
	}
	if secret != "" && strings.Contains(text, secret) {
		t.Errorf("the %s contains the credential: %s", field, text)
	}
}
