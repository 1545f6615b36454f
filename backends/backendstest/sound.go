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
	kinds  = []backends.Kind{backends.Refused, backends.Busy, backends.Doubtful, backends.Gone}
	types  = []backends.MediaType{backends.ImageFile, backends.VideoFile}

	reasons = []backends.Reason{
		backends.ContentRejected, backends.InvalidInput, backends.UpstreamBusy, backends.ModelFailed,
		backends.TaskTimeout, backends.TaskCancelled, backends.UpstreamError,
	}
)

// longestWait is the longest that a service can ask to wait.
const longestWait = time.Hour

// Sound checks what holds of every status. The secret is nowhere in it.
func Sound(t testing.TB, s backends.Status, secret string) {
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
		t.Errorf("a wait of %s", s.RetryAfter)
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
		discreet(t, "format", r.Format, secret)
	}
	if f := s.Failure; f != nil {
		if !slices.Contains(reasons, f.Reason) {
			t.Errorf("the reason %q is unknown", f.Reason)
		}
		if f.Message == "" {
			t.Error("a failure without a message")
		}
		discreet(t, "message", f.Message, secret)
		discreet(t, "detail", f.Detail, secret)
	}
	discreet(t, "word", s.Word, secret)
	discreet(t, "cost", s.Cost.Amount+s.Cost.Unit, secret)
}

// SoundError checks what holds of every error of a backend, and returns it as
// one of ours, or nil if it is none. The secret is nowhere in it.
func SoundError(t testing.TB, err error, secret string) *backends.Error {
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
		t.Errorf("a wait of %s", e.RetryAfter)
	}
	discreet(t, "message", e.Message, secret)
	discreet(t, "detail", e.Detail, secret)
	discreet(t, "code", e.Code, secret)
	if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, secret) && secret != "" {
		t.Errorf("the error prints the credential: %s", text)
	}
	return e
}

// discreet checks a text that comes from a service.
func discreet(t testing.TB, what, text, secret string) {
	t.Helper()
	if len(text) > backends.MaxText || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("the %s is %d bytes of %.80q", what, len(text), text)
	}
	if secret != "" && strings.Contains(text, secret) {
		t.Errorf("the %s tells the credential: %s", what, text)
	}
}
