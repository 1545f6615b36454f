package backendstest

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
)

func walk(t *testing.T, g *stage) {
	Walk(t, g.backend, g.double, g.Job)
	if n := g.requests(Submit); n != 1 {
		t.Errorf("%d requests for one submission", n)
	}
	if n := g.double.Accepted(); n != 1 {
		t.Errorf("%d jobs were taken", n)
	}
}

// Stages are what [Walk] needs of a service.
type Stages interface {
	Turn(state backends.State)
}

// Walk submits a job, brings it into each state and checks that it is told, up
// to success and, with another job, to failure.
func Walk(t *testing.T, b backends.Backend, stages Stages, job backends.Job) {
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
		stages.Turn(state)
		status, err := b.Poll(t.Context(), ref)
		if err != nil {
			t.Fatalf("%s: %v", state, err)
		}
		Sound(t, status, "")
		if status.State != state {
			t.Errorf("the job is %s, told is %+v", state, status)
		}
		if state == backends.Failed {
			continue
		}
		if status.Progress < last {
			t.Errorf("progress falls from %d to %d", last, status.Progress)
		}
		last = status.Progress
		for i, result := range status.Results {
			if result.Type != job.Kind.Makes() {
				t.Errorf("result %d is a %s", i, result.Type)
			}
			if _, fetches := b.(backends.Fetcher); result.URL == "" && !fetches {
				t.Errorf("result %d has no address and cannot be fetched", i)
			}
		}
	}
}

// crowdSize is how many jobs are submitted at once.
const crowdSize = 16

func crowd(t *testing.T, g *stage) {
	var (
		wait sync.WaitGroup
		refs [crowdSize]backends.Ref
	)
	for i := range refs {
		wait.Go(func() {
			job := g.Job
			job.Token = backends.Token(string(rune('a' + i)))
			ref, err := g.backend.Submit(t.Context(), job)
			if err != nil {
				t.Errorf("submit: %v", err)
				return
			}
			refs[i] = ref
			if _, err := g.backend.Poll(t.Context(), ref); err != nil {
				t.Errorf("poll: %v", err)
			}
		})
	}
	wait.Wait()
	ids := make(map[string]bool)
	for _, ref := range refs {
		ids[ref.ID] = true
	}
	if len(ids) != crowdSize || g.double.Accepted() != crowdSize {
		t.Errorf("%d submissions, %d references, %d jobs", crowdSize, len(ids), g.double.Accepted())
	}
}

func restart(t *testing.T, g *stage) {
	raw, err := json.Marshal(g.submitted(t))
	if err != nil {
		t.Fatal(err)
	}
	var ref backends.Ref
	if err := json.Unmarshal(raw, &ref); err != nil {
		t.Fatal(err)
	}
	g.backend = g.Backend(t, g.server.URL)
	g.double.Turn(backends.Succeeded)
	if status := g.polled(t, ref); status.State != backends.Succeeded {
		t.Errorf("after a restart: %+v", status)
	}
}

func unheardWord(t *testing.T, g *stage) {
	ref := g.submitted(t)
	for _, word := range []string{"levitating", "SUCCESSFUL?", "failed-over", "成功", "x\x00y"} {
		g.double.Turn(backends.Running)
		g.double.Say(word)
		status := g.polled(t, ref)
		if status.State != backends.Unknown {
			t.Errorf("%q is %s", word, status.State)
		}
		if want := backends.Text(word); status.Word != want {
			t.Errorf("the word %q is told as %q", word, status.Word)
		}
	}
	g.double.Say("")
	g.double.Turn(backends.Succeeded)
	if status := g.polled(t, ref); status.State != backends.Succeeded {
		t.Errorf("in the end it is %+v", status)
	}
}

func forgotten(t *testing.T, g *stage) {
	ref := g.submitted(t)
	g.double.Forget()
	_, err := g.backend.Poll(t.Context(), ref)
	g.refusedAs(t, "poll", err, backends.Gone)
}

func links(t *testing.T, g *stage) {
	linker, ok := g.double.(Linker)
	if !ok {
		t.Skip("the service gives bytes")
	}
	ref := g.submitted(t)
	g.double.Turn(backends.Succeeded)
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
		linker.Link(address)
		status := g.polled(t, ref)
		if good && (status.State != backends.Succeeded || status.Results[0].URL != address) {
			t.Errorf("%s is told as %+v", address, status)
		}
		if !good && status.State != backends.Unknown {
			t.Errorf("%q makes the job %+v", address, status)
		}
	}
}

func checks(t *testing.T, g *stage) {
	checker, ok := g.backend.(backends.Checker)
	if !ok {
		t.Skip("the service has no question that costs nothing")
	}
	if err := checker.Check(t.Context()); err != nil {
		t.Errorf("the service is there, and the check says %v", err)
	}
	put := func(do act) {
		for _, op := range []Op{Poll, Other} {
			g.on(op, do)
		}
	}
	for _, status := range []int{200, 204, 302, 307, 400, http401, 403, 404, 405, 410, http429, http500, http503} {
		for _, body := range []string{"", "{}", "[]", "<html>not here</html>", `{"error":{"message":"not ` + g.Secret + `","code":"NOT_FOUND"},"message":"no","code":"NOT_FOUND"}`} {
			put(answer(status, nil, body))
			err := checker.Check(t.Context())
			if SoundError(t, err, g.Secret) == nil {
				t.Errorf("what answers %d %s is taken for the service: %v", status, body, err)
			}
		}
	}
	put(cut(true))
	SoundError(t, checker.Check(t.Context()), g.Secret)
	put(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if checker.Check(ctx) == nil {
		t.Error("a check goes on after its context")
	}
	g.server.Close()
	g.refusedAs(t, "nobody there", checker.Check(t.Context()), backends.Busy)
	if n := g.requests(Submit); n != 0 || g.double.Accepted() != 0 {
		t.Errorf("the checks came to %d submissions", n)
	}
}

func cancels(t *testing.T, g *stage) {
	canceler, ok := g.backend.(backends.Canceler)
	if !ok {
		t.Skip("the service ends no job early")
	}
	ref := g.submitted(t)
	g.double.Turn(backends.Running)
	if err := canceler.Cancel(t.Context(), ref); err != nil {
		t.Errorf("cancel: %v", err)
	}
	status, err := g.backend.Poll(t.Context(), ref)
	if backends.KindOf(err) != backends.Gone && (err != nil || status.State != backends.Failed) {
		t.Errorf("a cancelled job is %+v, %v", status, err)
	}

	ref = g.submitted(t)
	g.double.Turn(backends.Succeeded)
	if err := canceler.Cancel(t.Context(), ref); err == nil {
		t.Error("a finished job was cancelled")
	} else {
		g.refusedAs(t, "cancelling a finished job", err, backends.Refused, backends.Gone)
	}

	g.double.Forget()
	g.refusedAs(t, "cancelling no job", canceler.Cancel(t.Context(), ref), backends.Gone)

	for status, want := range map[int]backends.Kind{
		http401: backends.Refused, http429: backends.Busy, http500: backends.Doubtful, http503: backends.Doubtful,
	} {
		g.on(Cancel, answer(status, nil, "{}"))
		g.refusedAs(t, "cancel", canceler.Cancel(t.Context(), ref), want)
	}
}
