package demo

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/backendstest"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

// testDemo is a Demo whose time the test sets. It stores the reference of its last
// job.
type testDemo struct {
	*Demo
	at   time.Time
	last backends.Ref
}

func newDemo(t *testing.T) *testDemo {
	t.Helper()
	c := &testDemo{Demo: new(Demo), at: time.Unix(1_800_000_000, 0)}
	c.now = func() time.Time { return c.at }
	if err := paymentstest.Provision(t, c.Demo); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *testDemo) Submit(ctx context.Context, job backends.Job) (backends.Ref, error) {
	ref, err := c.Demo.Submit(ctx, job)
	c.last = ref
	return ref, err
}

// SetState implements backendstest.StateSetter by changing the time.
func (c *testDemo) SetState(state backends.State) {
	switch state {
	case backends.Running:
		c.at = c.at.Add(2 * time.Second)
	case backends.Succeeded:
		c.at = c.at.Add(2 * time.Second)
	case backends.Failed:
		c.at = c.at.Add(-time.Second)
		_ = c.Cancel(context.Background(), c.last)
	}
}

func video(prompt string) backends.Job {
	return backends.Job{
		Token: backends.Token(prompt), Kind: backends.Video, Model: "video-demo-1", Prompt: prompt,
		Output: backends.Output{Duration: 1, Width: 64, Height: 48},
	}
}

func TestJobsReachEveryState(t *testing.T) {
	t.Parallel()
	for _, kind := range []backends.JobKind{backends.Video, backends.Image, backends.Generations} {
		job := video("a fox")
		job.Kind = kind
		c := newDemo(t)
		backendstest.CheckLifecycle(t, c, c, job)
	}
}

func TestAReferenceIsValidAfterARestart(t *testing.T) {
	t.Parallel()
	c := newDemo(t)
	ref, err := c.Submit(t.Context(), video("a fox"))
	if err != nil || !backends.IsID(ref.ID) {
		t.Fatalf("%+v, %v", ref, err)
	}
	raw, err := json.Marshal(ref)
	if err != nil {
		t.Fatal(err)
	}
	var read backends.Ref
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	later := newDemo(t)
	later.at = c.at.Add(4 * time.Second)
	if status, err := later.Poll(t.Context(), read); err != nil || status.State != backends.Succeeded {
		t.Errorf("%+v, %v", status, err)
	}
	if !bytes.Equal(fetch(t, later, read, 0), fetch(t, later, read, 0)) {
		t.Error("two fetches of a result return different files")
	}
}

func TestTheReferenceOfALongJobIsAValidID(t *testing.T) {
	t.Parallel()
	c := newDemo(t)
	job := video(strings.Repeat("long ", 5000) + "demo:overloaded demo:slow=1h")
	job.Kind, job.Output = backends.Generations, backends.Output{Duration: 59.123456789012345, Width: 4096, Height: 4096, Count: 10}
	if ref, err := c.Submit(t.Context(), job); err != nil || !backends.IsID(ref.ID) {
		t.Errorf("%d bytes, %v", len(ref.ID), err)
	}
}

func fetch(t *testing.T, b backends.Fetcher, ref backends.Ref, index int) []byte {
	t.Helper()
	file, content, err := b.Fetch(t.Context(), ref, index)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	if content.Size != -1 && content.Size != int64(len(read)) {
		t.Errorf("the file has %d bytes, Content.Size is %d", len(read), content.Size)
	}
	return read
}

func TestFilesMatchTheirResults(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		kind   backends.JobKind
		output backends.Output
		want   backends.Result
		count  int
		prefix string
	}{
		{backends.Video, backends.Output{Duration: 1, Resolution: "540P", AspectRatio: "9:16"}, backends.Result{Duration: 1, Width: 540, Height: 960, Format: "mp4"}, 1, "\x00\x00\x00\x20ftypisom"},
		{backends.Video, backends.Output{Width: 64, Height: 64}, backends.Result{Duration: 5, Width: 64, Height: 64, Format: "mp4"}, 1, "\x00\x00\x00\x20ftypisom"},
		{backends.Generations, backends.Output{Duration: 0.5, Width: 99, Height: 1, Count: 2}, backends.Result{Duration: 0.5, Width: 100, Height: 32, Format: "mp4"}, 2, "\x00\x00\x00\x20ftypisom"},
		{backends.Image, backends.Output{Width: 90, Height: 60}, backends.Result{Width: 90, Height: 60, Format: "png"}, 1, "\x89PNG"},
		{backends.Image, backends.Output{Width: 90, Height: 60, Count: 3, Format: "jpeg"}, backends.Result{Width: 90, Height: 60, Format: "jpeg"}, 3, "\xff\xd8"},
		{backends.Image, backends.Output{Width: 32, Height: 32, Count: 99}, backends.Result{Width: 32, Height: 32, Format: "png"}, 10, "\x89PNG"},
	} {
		c := newDemo(t)
		job := video("a fox")
		job.Kind, job.Output = row.kind, row.output
		ref, err := c.Submit(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		c.at = c.at.Add(time.Hour)
		status, err := c.Poll(t.Context(), ref)
		if err != nil || len(status.Results) != row.count {
			t.Fatalf("%+v, %v", status, err)
		}
		row.want.Type = row.kind.Makes()
		files := make(map[string]bool)
		for i, result := range status.Results {
			if result != row.want {
				t.Errorf("got %+v, want %+v", result, row.want)
			}
			file := fetch(t, c, ref, i)
			files[string(file)] = true
			if !bytes.HasPrefix(file, []byte(row.prefix)) {
				t.Errorf("a file of the format %s begins with % x", result.Format, file[:8])
			}
			if row.kind == backends.Image {
				if got, format, err := image.DecodeConfig(bytes.NewReader(file)); err != nil || format != result.Format || got.Width != result.Width || got.Height != result.Height {
					t.Errorf("the image is a %s of %v, %v; want %+v", format, got, err, result)
				}
			}
		}
		if len(files) != row.count {
			t.Errorf("%d results have %d different files", row.count, len(files))
		}
	}
}

func TestPromptWordsSimulateFailures(t *testing.T) {
	t.Parallel()
	type outcome struct {
		submit backends.Kind
		during backends.State
		after  backends.State
		reason backends.Reason
	}
	success := outcome{during: backends.Running, after: backends.Succeeded}
	for prompt, want := range map[string]outcome{
		"a fox":                        success,
		"a fox demo:nonsense=1 demo:":  success,
		"pandemo:fail":                 success,
		"demo:fail":                    {"", backends.Running, backends.Failed, backends.ModelFailed},
		"a fox. demo:unsafe.":          {"", backends.Running, backends.Failed, backends.ContentRejected},
		"demo:overloaded":              {"", backends.Running, backends.Failed, backends.UpstreamBusy},
		"demo:stuck":                   {"", backends.Unknown, backends.Succeeded, ""},
		"demo:slow":                    {"", backends.Queued, backends.Queued, ""},
		"demo:slow=5s, please":         {"", backends.Running, backends.Running, ""},
		"demo:slow=4s demo:fail":       {"", backends.Running, backends.Failed, backends.ModelFailed},
		"demo:slow=61m":                {submit: backends.Refused},
		"demo:slow=0":                  {submit: backends.Refused},
		"demo:slow=soon":               {submit: backends.Refused},
		"demo:fail=1":                  {submit: backends.Refused},
		"demo:fail=5s":                 {submit: backends.Refused},
		"demo:refuse":                  {submit: backends.Refused},
		"demo:doubt":                   {submit: backends.Unconfirmed},
		"demo:lost":                    {submit: backends.Unconfirmed},
		"demo:busy":                    {submit: backends.Busy},
		"demo:busy demo:unsafe a fox.": {submit: backends.Busy},
	} {
		c := newDemo(t)
		ref, err := c.Submit(t.Context(), video(prompt))
		if want.submit != "" {
			if e := backendstest.CheckError(t, err, ""); e == nil || e.Kind != want.submit {
				t.Errorf("%q: %v, want %s", prompt, err, want.submit)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", prompt, err)
			continue
		}
		for at, state := range map[time.Duration]backends.State{3999 * time.Millisecond: want.during, 4 * time.Second: want.after} {
			c.at = time.Unix(1_800_000_000, 0).Add(at)
			status, err := c.Poll(t.Context(), ref)
			if err != nil || status.State != state {
				t.Errorf("%q after %s: %+v, %v, want %s", prompt, at, status, err, state)
			}
			backendstest.CheckStatus(t, status, "")
			if status.Failure != nil && status.Failure.Reason != want.reason {
				t.Errorf("%q: %+v", prompt, status.Failure)
			}
		}
	}
}

func TestABusyDemoAcceptsTheSecondSubmission(t *testing.T) {
	t.Parallel()
	c := newDemo(t)
	_, err := c.Submit(t.Context(), video("demo:busy"))
	if e, ok := errors.AsType[*backends.Error](err); !ok || e.RetryAfter != time.Second {
		t.Errorf("got %v", err)
	}
	if _, err := c.Submit(t.Context(), video("demo:busy")); err != nil {
		t.Error(err)
	}
	if _, err := c.Submit(t.Context(), video("another, demo:busy")); backends.KindOf(err) != backends.Busy {
		t.Errorf("the first submission of another job: %v", err)
	}
}

func TestReconcileFindsOnlyAnAcceptedSubmission(t *testing.T) {
	t.Parallel()
	c := newDemo(t)
	for _, prompt := range []string{"demo:doubt", "demo:busy demo:doubt", "a boat"} {
		ref, err := c.Reconcile(t.Context(), video(prompt))
		if err != nil {
			t.Fatal(err)
		}
		if status, err := c.Poll(t.Context(), ref); err != nil || status.State != backends.Queued {
			t.Errorf("%s: %+v, %v", prompt, status, err)
		}
	}
	for _, prompt := range []string{"demo:lost", "demo:refuse", "demo:busy"} {
		if _, err := c.Reconcile(t.Context(), video(prompt)); backends.KindOf(err) != backends.Gone {
			t.Errorf("%s: %v", prompt, err)
		}
	}
}

func TestARemixDependsOnTheEarlierVideo(t *testing.T) {
	t.Parallel()
	c := newDemo(t)
	remixed := func(source backends.Ref) []byte {
		job := video("in smoke")
		job.Source = &source
		ref, err := c.Remix(t.Context(), source, job)
		if err != nil {
			t.Fatal(err)
		}
		c.at = c.at.Add(4 * time.Second)
		return fetch(t, c, ref, 0)
	}
	one, err := c.Submit(t.Context(), video("a boat"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.Submit(t.Context(), video("a ship"))
	if err != nil {
		t.Fatal(err)
	}
	if first := remixed(one); bytes.Equal(first, remixed(two)) || !bytes.Equal(first, remixed(one)) {
		t.Error("remixes of two videos are equal, or of one differ")
	}
	if _, err := c.Remix(t.Context(), backends.Ref{ID: "video_1"}, video("a ship")); backends.KindOf(err) != backends.Refused {
		t.Errorf("a remix of an unknown video: %v", err)
	}
}

func TestInvalidReferencesAreGone(t *testing.T) {
	t.Parallel()
	c := newDemo(t)
	for _, id := range []string{"", "x", "!", "e30", "bnVsbA", "W10", strings.Repeat("A", 400), encoded(`{"s":"x","d":1,"n":11}`), encoded(`{"s":"x","d":1,"n":0}`), encoded(`{"s":"x","d":0,"n":1}`), encoded(`{"d":1,"n":1}`)} {
		if status, err := c.Poll(t.Context(), backends.Ref{ID: id}); backends.KindOf(err) != backends.Gone {
			t.Errorf("%q: %+v, %v", id, status, err)
		}
		if err := c.Cancel(t.Context(), backends.Ref{ID: id}); backends.KindOf(err) != backends.Gone {
			t.Errorf("%q: %v", id, err)
		}
		if _, _, err := c.Fetch(t.Context(), backends.Ref{ID: id}, 0); backends.KindOf(err) != backends.Gone {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func encoded(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func TestMissingFilesAreNotFetched(t *testing.T) {
	t.Parallel()
	c := newDemo(t)
	ref, _ := c.Submit(t.Context(), video("a fox"))
	if _, _, err := c.Fetch(t.Context(), ref, 0); err == nil {
		t.Error("an unfinished job has a file")
	}
	c.at = c.at.Add(time.Minute)
	for _, index := range []int{-1, 1} {
		if _, _, err := c.Fetch(t.Context(), ref, index); err == nil {
			t.Errorf("the result with the index %d was fetched", index)
		}
	}
	if err := c.Cancel(t.Context(), ref); backends.KindOf(err) != backends.Refused {
		t.Errorf("cancelling a finished job: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	file, _, err := c.Fetch(ctx, ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(file); !errors.Is(err, context.Canceled) {
		t.Errorf("reading after the context ended: %v", err)
	}
	if _, err := c.Submit(ctx, video("a fox")); backends.KindOf(err) != backends.Busy {
		t.Errorf("submitting after the context ended: %v", err)
	}
}

func TestTheSetOfPostponedJobsIsLimited(t *testing.T) {
	t.Parallel()
	c := newDemo(t)
	for i := range maxIDs + 1 {
		c.add(c.postponed, string(rune(i)))
	}
	if len(c.postponed) > maxIDs {
		t.Errorf("the set has %d jobs", len(c.postponed))
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *Demo { return new(Demo) }, map[string]string{
		"demo":                          `{}`,
		"demo {\ntakes 90s\n}":          `{"takes":90000000000}`,
		"demo {\ntakes 0s\n}":           ``,
		"demo {\ntakes -1s\n}":          ``,
		"demo {\ntakes 61m\n}":          ``,
		"demo {\ntakes soon\n}":         ``,
		"demo {\ntakes\n}":              ``,
		"demo {\ntakes 1s\ntakes 1s\n}": ``,
		"demo {\nkey hush\n}":           ``,
		"demo hush":                     ``,
	})
	for takes, good := range map[time.Duration]bool{0: true, time.Hour: true, time.Hour + 1: false, -1: false} {
		if err := paymentstest.Provision(t, &Demo{Takes: caddy.Duration(takes)}); (err == nil) != good {
			t.Errorf("%s: %v", takes, err)
		}
	}
}

func TestTheDocumentationListsTheWords(t *testing.T) {
	t.Parallel()
	var known []string
	for word := range table {
		known = append(known, word)
	}
	slices.Sort(known)
	const reference, begin, end = "../../docs/reference/configuration.md", "### adapter demo\n", "\n### "
	for file, form := range map[string]string{"demo.go": `(?m)^//\tdemo:([a-z]+) `, reference: "(?m)^\\| `demo:([a-z]+)"} {
		source, err := os.ReadFile(file) //nolint:gosec // a constant path
		if err != nil {
			t.Fatal(err)
		}
		text := string(source)
		if file == reference {
			_, text, _ = strings.Cut(text, begin)
			text, _, _ = strings.Cut(text, end)
		}
		var listed []string
		for _, found := range regexp.MustCompile(form).FindAllStringSubmatch(text, -1) {
			listed = append(listed, found[1])
		}
		slices.Sort(listed)
		if !slices.Equal(listed, known) {
			t.Errorf("%s lists %q, the code has %q", file, listed, known)
		}
	}
}
