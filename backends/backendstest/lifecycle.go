package backendstest

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
)

func testLifecycle(t *testing.T, f *fixture) {
	CheckLifecycle(t, f.backend, f.mock, f.Job)
	if n := f.requests(Submit); n != 1 {
		t.Errorf("one submission sent %d requests", n)
	}
	if n := f.mock.Accepted(); n != 1 {
		t.Errorf("%d jobs were accepted", n)
	}
}

// StateSetter changes the state of a job for [CheckLifecycle].
type StateSetter interface {
	SetState(state backends.State)
}

// CheckLifecycle submits a job, puts it into each state, and checks that Poll
// reports this state.
func CheckLifecycle(t *testing.T, b backends.Backend, setter StateSetter, job backends.Job) {
	t.Helper()
	ref, err := b.Submit(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if ref.ID == "" {
		t.Error("the reference has no id")
	}
	last := 0
	for _, state := range []backends.State{backends.Queued, backends.Running, backends.Succeeded, backends.Failed} {
		setter.SetState(state)
		status, err := b.Poll(t.Context(), ref)
		if err != nil {
			t.Fatalf("%s: %v", state, err)
		}
		CheckStatus(t, status, "")
		if status.State != state {
			t.Errorf("the job is %s, Poll returns %+v", state, status)
		}
		if state == backends.Failed {
			continue
		}
		if status.Progress < last {
			t.Errorf("the progress falls from %d to %d", last, status.Progress)
		}
		last = status.Progress
		for i, result := range status.Results {
			if result.Type != job.Kind.Makes() {
				t.Errorf("result %d is a %s", i, result.Type)
			}
			if _, fetch := b.(backends.Fetcher); result.URL == "" && !fetch {
				t.Errorf("result %d has no URL, and the backend is not a Fetcher", i)
			}
		}
	}
}

// concurrency is the number of jobs that are submitted at the same time.
const concurrency = 16

func testConcurrentSubmissions(t *testing.T, f *fixture) {
	var (
		wait sync.WaitGroup
		refs [concurrency]backends.Ref
	)
	for i := range refs {
		wait.Go(func() {
			job := f.Job
			job.Token = backends.Token(string(rune('a' + i)))
			ref, err := f.backend.Submit(t.Context(), job)
			if err != nil {
				t.Errorf("submit: %v", err)
				return
			}
			refs[i] = ref
			if _, err := f.backend.Poll(t.Context(), ref); err != nil {
				t.Errorf("poll: %v", err)
			}
		})
	}
	wait.Wait()
	ids := make(map[string]bool)
	for _, ref := range refs {
		ids[ref.ID] = true
	}
	if len(ids) != concurrency || f.mock.Accepted() != concurrency {
		t.Errorf("%d submissions, %d references, %d jobs", concurrency, len(ids), f.mock.Accepted())
	}
}

func testRestart(t *testing.T, f *fixture) {
	raw, err := json.Marshal(f.submit(t))
	if err != nil {
		t.Fatal(err)
	}
	var ref backends.Ref
	if err := json.Unmarshal(raw, &ref); err != nil {
		t.Fatal(err)
	}
	f.backend = f.Backend(t, f.server.URL)
	f.mock.SetState(backends.Succeeded)
	if status := f.poll(t, ref); status.State != backends.Succeeded {
		t.Errorf("the status after a restart is %+v", status)
	}
}

func testUnknownStatusWord(t *testing.T, f *fixture) {
	ref := f.submit(t)
	for _, word := range []string{"levitating", "SUCCESSFUL?", "failed-over", "成功", "x\x00y"} {
		f.mock.SetState(backends.Running)
		f.mock.SetStatusWord(word)
		status := f.poll(t, ref)
		if status.State != backends.Unknown {
			t.Errorf("the state for %q is %s, want %s", word, status.State, backends.Unknown)
		}
		if want := backends.Text(word); status.Word != want {
			t.Errorf("the status word %q is reported as %q", word, status.Word)
		}
	}
	f.mock.SetStatusWord("")
	f.mock.SetState(backends.Succeeded)
	if status := f.poll(t, ref); status.State != backends.Succeeded {
		t.Errorf("the last status is %+v", status)
	}
}

func testUnknownJob(t *testing.T, f *fixture) {
	ref := f.submit(t)
	f.mock.ForgetJobs()
	_, err := f.backend.Poll(t.Context(), ref)
	f.wantError(t, "poll", err, backends.Gone)
}

func testResultURLs(t *testing.T, f *fixture) {
	setter, ok := f.mock.(ResultURLSetter)
	if !ok {
		t.Skip("results have no URL")
	}
	ref := f.submit(t)
	f.mock.SetState(backends.Succeeded)
	for address, good := range map[string]bool{
		"https://files.example.com/a/b.mp4?sig=1%2F2": true,
		"http://files.example.com/a.mp4":              true,
		"HTTPS://files.example.com/a.mp4":             true,
		"":                                            false,
		"/a.mp4":                                      false,
		"//files.example.com/a.mp4":                   false,
		"files.example.com/a.mp4":                     false,
		"https:///a.mp4":                              false,
		"https://":                                    false,
		"https://:443/a.mp4":                          false,
		"https://me:it@files.example.com/a.mp4":       false,
		"javascript:alert(1)":                         false,
		"data:video/mp4;base64,AAAA":                  false,
		"file:///etc/passwd":                          false,
		"ftp://files.example.com/a.mp4":               false,
		"gopher://files.example.com/":                 false,
		"https://files.example.com/a b.mp4":           false,
		"https://files.example.com/a\nb.mp4":          false,
		"https://files.example.com/%zz":               false,
	} {
		setter.SetResultURL(address)
		status := f.poll(t, ref)
		if good && (status.State != backends.Succeeded || status.Results[0].URL != address) {
			t.Errorf("the status of a job with the result %s is %+v", address, status)
		}
		if !good && status.State != backends.Unknown {
			t.Errorf("the status of a job with the result %q is %+v, want %s", address, status, backends.Unknown)
		}
	}
}

func testCheck(t *testing.T, f *fixture) {
	checker, ok := f.backend.(backends.Checker)
	if !ok {
		t.Skip("the backend is not a Checker")
	}
	if err := checker.Check(t.Context()); err != nil {
		t.Errorf("the service is available, but Check returns %v", err)
	}
	overrideReads := func(do overrideFunc) {
		for _, op := range []Op{Poll, Other} {
			f.override(op, do)
		}
	}
	for _, status := range []int{200, 204, 302, 307, 400, http401, 403, 404, 405, 410, http429, http500, http503} {
		for _, body := range []string{"", "{}", "[]", "<html>not here</html>", `{"error":{"message":"not ` + f.Secret + `","code":"NOT_FOUND"},"message":"no","code":"NOT_FOUND"}`} {
			overrideReads(answer(status, nil, body))
			err := checker.Check(t.Context())
			if CheckError(t, err, f.Secret) == nil {
				t.Errorf("Check of a service that answers %d %s returns %v", status, body, err)
			}
		}
	}
	overrideReads(dropConnection(true))
	CheckError(t, checker.Check(t.Context()), f.Secret)
	overrideReads(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if checker.Check(ctx) == nil {
		t.Error("Check succeeds after its context ended")
	}
	f.server.Close()
	f.wantError(t, "check of an unreachable service", checker.Check(t.Context()), backends.Busy)
	if n := f.requests(Submit); n != 0 || f.mock.Accepted() != 0 {
		t.Errorf("the checks sent %d submissions", n)
	}
}

func testCancel(t *testing.T, f *fixture) {
	canceler, ok := f.backend.(backends.Canceler)
	if !ok {
		t.Skip("the backend is not a Canceler")
	}
	ref := f.submit(t)
	f.mock.SetState(backends.Running)
	if err := canceler.Cancel(t.Context(), ref); err != nil {
		t.Errorf("cancel: %v", err)
	}
	status, err := f.backend.Poll(t.Context(), ref)
	if backends.KindOf(err) != backends.Gone && (err != nil || status.State != backends.Failed) {
		t.Errorf("the status of a cancelled job is %+v, %v", status, err)
	}

	ref = f.submit(t)
	f.mock.SetState(backends.Succeeded)
	if err := canceler.Cancel(t.Context(), ref); err == nil {
		t.Error("a finished job was cancelled")
	} else {
		f.wantError(t, "cancel a finished job", err, backends.Refused, backends.Gone)
	}

	f.mock.ForgetJobs()
	f.wantError(t, "cancel an unknown job", canceler.Cancel(t.Context(), ref), backends.Gone)

	for status, want := range map[int]backends.Kind{
		http401: backends.Refused, http429: backends.Busy, http500: backends.Unconfirmed, http503: backends.Unconfirmed,
	} {
		f.override(Cancel, answer(status, nil, "{}"))
		f.wantError(t, "cancel", canceler.Cancel(t.Context(), ref), want)
	}
}
