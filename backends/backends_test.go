package backends_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/backends"
)

func TestATokenDependsOnlyOnTheTaskIDAndHidesIt(t *testing.T) {
	t.Parallel()
	token := backends.Token("task_abc")
	if token != backends.Token("task_abc") || token == backends.Token("task_abd") {
		t.Error("the token of a task changed, or two tasks have the same token")
	}
	if len(token) != 32 || strings.Trim(token, "abcdefghijklmnopqrstuvwxyz234567") != "" || strings.Contains(token, "abc") {
		t.Errorf("the token is %q", token)
	}
	if token != "e5lclykeg4y3txaxpes2mn7vps565rpc" {
		t.Errorf("the token is %q, not that of earlier releases: unfinished tasks would be lost", token)
	}
}

func TestInvalidIDsAreRejected(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"task_1": true, "a/b?c=d": true, "~": true, strings.Repeat("x", 255): true,
		"": false, "a b": false, "a\nb": false, "a\x00": false, "é": false, "\x7f": false, "\xff": false, strings.Repeat("x", 256): false,
	} {
		if got := backends.IsID(text); got != want {
			t.Errorf("IsID(%q) is %t, want %t", text, got, want)
		}
	}
}

func TestTextReturnsOneShortLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "",
		"a b c":                         "a b c",
		strings.Repeat("x", 5000):       strings.Repeat("x", 1024),
		"  a\n\tb\r\nc\u2028d\v ":       "a b c d",
		"a\x00b\x1b[31mc\x7f":           "ab[31mc",
		"a\u202eb\u200bc\ufeff":         "abc",
		"a\xff\xfeb\ufffdc":             "abc",
		"内容违规 ☃":                        "内容违规 ☃",
		strings.Repeat("é", 600):        strings.Repeat("é", 512),
		"a" + strings.Repeat("é", 600):  "a" + strings.Repeat("é", 511),
		strings.Repeat(" ", 9000) + "x": "",
	} {
		if got := backends.Text(text); got != want {
			t.Errorf("Text(%.40q) is %.40q of %d bytes, want %.40q", text, got, len(got), want)
		}
	}
}

// FuzzText checks that Text returns a valid text of bounded length for any
// input.
func FuzzText(f *testing.F) {
	for _, text := range []string{"", "x\n", "\xff", strings.Repeat("é", 2000), "\u202e\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := backends.Text(text)
		if len(got) > backends.MaxText || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("Text(%q) is %q", text, got)
		}
		if again := backends.Text(got); again != got {
			t.Errorf("Text(%q) is %q, want it unchanged", got, again)
		}
	})
}

func TestStatusWordsIgnoreCase(t *testing.T) {
	t.Parallel()
	words := backends.Words{"queued": backends.Queued, "done": backends.Succeeded}
	for word, want := range map[string]backends.State{
		"queued": backends.Queued, "QUEUED": backends.Queued, " Done\n": backends.Succeeded, "": backends.Unknown, "don": backends.Unknown, "done!": backends.Unknown,
	} {
		if got := words.State(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}

func TestFailureMessagesHideTheOperatorsAccount(t *testing.T) {
	t.Parallel()
	const text = "account 4711 is out of money"
	for reason, shown := range map[backends.Reason]bool{
		backends.ContentRejected: true, backends.InvalidInput: true, backends.ModelFailed: true,
		backends.UpstreamBusy: false, backends.TaskTimeout: false, backends.TaskCancelled: false, backends.UpstreamError: false,
	} {
		f := backends.Fail(reason, "E1", text)
		if f.Reason != reason || (f.Message == text) != shown || f.Message == "" || f.Detail != "E1 "+text {
			t.Errorf("%s: %+v", reason, f)
		}
		if f := backends.Fail(reason, "", ""); f.Message == "" || f.Detail != "" {
			t.Errorf("%s without a text: %+v", reason, f)
		}
	}
	if f := backends.Fail("NEW", "", text); f.Reason != backends.UpstreamError || f.Message == text {
		t.Errorf("an unknown reason: %+v", f)
	}
}

func TestMessagesHaveNoInternalAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"no address: 16:9 at 10:30, v1.5 of e.g. this":     "no address: 16:9 at 10:30, v1.5 of e.g. this",
		"cannot fetch http://10.0.0.7:8080/run?x=1.":       "cannot fetch [address].",
		"cannot fetch (http://127.1/a), retry":             "cannot fetch ([address]), retry",
		"see https://docs.example.com/policy.":             "see https://docs.example.com/policy.",
		"https://files.example.com/a.png?sig=abc#x failed": "https://files.example.com/a.png failed",
		"https://user:pass@files.example.com/a":            "[address]",
		"s3://bucket/key, redis://cache:6379/0":            "[address], [address]",
		"http://worker-7/run and http://worker.svc/run":    "[address] and [address]",
		"dial tcp 192.168.4.5:443: refused":                "dial tcp [address]: refused",
		"dial tcp [fd00::1]:443: refused":                  "dial tcp [address]: refused",
		"host gpu-3.cluster.local:50051 is down":           "host [address] is down",
		"localhost:3000 is down":                           "[address] is down",
		"metadata.google.internal and 169.254.169.254":     "[address] and [address]",
		"http://[::1]:80/x":                                "[address]",
		"https://api.vendor.example/v1/jobs/7":             "[address]",
		"api.vendor.example is down":                       "[address] is down",
	} {
		if got := backends.RedactAddresses(text, "api.vendor.example"); got != want {
			t.Errorf("RedactAddresses(%q) is %q, want %q", text, got, want)
		}
	}
	if f := backends.Fail(backends.ModelFailed, "E1", "http://10.0.0.7/x failed"); f.Message != "[address] failed" || f.Detail != "E1 http://10.0.0.7/x failed" {
		t.Errorf("%+v", f)
	}
}

func TestSizesComeFromResolutionAndRatio(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		out           backends.Output
		width, height int
	}{
		{backends.Output{}, 1280, 720},
		{backends.Output{Width: 640, Height: 360, Resolution: "4K"}, 640, 360},
		{backends.Output{Width: 640, Resolution: "1080P"}, 1920, 1080},
		{backends.Output{Resolution: "540P"}, 960, 540},
		{backends.Output{Resolution: "720p", AspectRatio: "9:16"}, 720, 1280},
		{backends.Output{Resolution: "768P", AspectRatio: "4:3"}, 1024, 768},
		{backends.Output{Resolution: "1080P", AspectRatio: "1:1"}, 1080, 1080},
		{backends.Output{Resolution: "1K", AspectRatio: "1:1"}, 1024, 1024},
		{backends.Output{Resolution: "2K", AspectRatio: "21:9"}, 3360, 1440},
		{backends.Output{Resolution: "4K", AspectRatio: "2:3"}, 2160, 3240},
		{backends.Output{Resolution: "540P", AspectRatio: "16:9"}, 960, 540},
		{backends.Output{Resolution: "768P", AspectRatio: "16:9"}, 1366, 768},
		{backends.Output{Resolution: "8K", AspectRatio: "0:1"}, 1280, 720},
		{backends.Output{AspectRatio: "100:1"}, 1280, 720},
		{backends.Output{AspectRatio: "-4:3"}, 1280, 720},
		{backends.Output{AspectRatio: "16"}, 1280, 720},
		{backends.Output{AspectRatio: "16:9:1"}, 1280, 720},
	} {
		if w, h := row.out.Size(); w != row.width || h != row.height {
			t.Errorf("the size of %+v is %d × %d, want %d × %d", row.out, w, h, row.width, row.height)
		}
	}
}

func TestSecondsIsTheShortestDecimal(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{0: "", -1: "", 5: "5", 10: "10", 2.5: "2.5", 0.1 + 0.2: "0.3", 1.0005: "1", 100: "100", 1e15: "1000000000000000"} {
		if got := (backends.Output{Duration: seconds}).Seconds(); got != want {
			t.Errorf("%g is %q, want %q", seconds, got, want)
		}
	}
}

func TestErrorsNameTheCallersField(t *testing.T) {
	t.Parallel()
	for param, want := range map[string]string{
		"output.duration": "duration", "output.count": "n", "output.width": "width", "output.resolution": "width",
		"output.aspect_ratio": "width", "inputs": "image", "inputs[0]": "image", "prompt": "prompt", "": "",
	} {
		err := fmt.Errorf("submit: %w", backends.Invalid(param, "no"))
		for kind, expected := range map[backends.JobKind]string{backends.Generations: want, backends.Video: param, backends.Image: param} {
			named, ok := errors.AsType[*backends.Error](backends.Job{Kind: kind}.Named(err))
			if !ok || named.Param != expected || named.Kind != backends.Refused {
				t.Errorf("%s on %s is %+v", param, kind, named)
			}
		}
	}
	if other := errors.New("x"); !errors.Is((backends.Job{}).Named(other), other) {
		t.Error("Named changed an error that is not an Error")
	}
}

func TestAnErrorWithoutAKindIsUnconfirmed(t *testing.T) {
	t.Parallel()
	if got := backends.KindOf(errors.New("x")); got != backends.Unconfirmed {
		t.Errorf("got %s", got)
	}
	e := &backends.Error{Kind: backends.Busy, Message: "m", Param: "p", Detail: "d", RetryAfter: time.Second}
	if got := backends.KindOf(fmt.Errorf("w: %w", e)); got != backends.Busy {
		t.Errorf("got %s", got)
	}
	if e.Error() != "busy (p): m [d]" {
		t.Errorf("got %s", e)
	}
}

func TestJobsAndReferencesAreUnchangedAfterJSON(t *testing.T) {
	t.Parallel()
	seed := int64(0)
	job := backends.Job{
		Token: "t", NotifyURL: "u", Kind: backends.Generations, Model: "m", Prompt: "p", NegativePrompt: "n", EnhancePrompt: "enabled",
		GenerationMode: "g", Inputs: []backends.Input{{"u", "image", "r", "o", "v", "k", "firstFrame", "t"}},
		SubjectInputs: []backends.SubjectInput{{"u", "i", "n"}},
		Output:        backends.Output{1.5, "720P", "1:1", "enabled", "disabled", "enabled", "m", 3, 2, "png", 1, 2, 3},
		SceneType:     "s", InputRegion: "oversea", Seed: &seed, ExtInfo: json.RawMessage(`{"a":1.50}`),
		Fields: map[string]json.RawMessage{"x": json.RawMessage(`null`)}, Adopted: []string{"seconds"},
		Source: &backends.Ref{ID: "i", Kind: "k", Base: "b", Account: "a", Links: map[string]string{"x": "y"}},
	}
	for field, value := range reflect.ValueOf(job).Fields() {
		if value.IsZero() {
			t.Errorf("the test does not set %s", field.Name)
		}
	}
	raw, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	var read backends.Job
	if err := json.Unmarshal(raw, &read); err != nil || !reflect.DeepEqual(read, job) {
		t.Errorf("%v: got %+v", err, read)
	}
	ref := backends.Ref{ID: "i", Kind: "k", Base: "b", Account: "a", Links: map[string]string{"x": "y"}}
	raw, err = json.Marshal(ref)
	if err != nil {
		t.Fatal(err)
	}
	var readRef backends.Ref
	if err := json.Unmarshal(raw, &readRef); err != nil || !reflect.DeepEqual(readRef, ref) {
		t.Errorf("%v: got %+v", err, readRef)
	}
}
