package backendstest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
)

func fetches(t *testing.T, g *stage) {
	fetcher, ok := g.backend.(backends.Fetcher)
	if !ok {
		t.Skip("the service gives links")
	}
	ref := g.submitted(t)
	g.double.Turn(backends.Succeeded)
	status := g.polled(t, ref)
	if status.Results[0].URL != "" {
		if fetcher.OnlyBytes() {
			t.Errorf("only bytes, and a result is at %s", status.Results[0].URL)
		}
		t.Skip("these results are links")
	}
	file, content, err := fetcher.Fetch(t.Context(), ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	read, err := io.ReadAll(file)
	if err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if len(read) == 0 || g.Content != nil && !bytes.Equal(read, g.Content) {
		t.Errorf("fetched %d bytes, want %d", len(read), len(g.Content))
	}
	if content.Size != -1 && content.Size != int64(len(read)) {
		t.Errorf("%d bytes were announced, %d came", content.Size, len(read))
	}
	for _, index := range []int{-1, len(status.Results), 1 << 40} {
		if file, _, err := fetcher.Fetch(t.Context(), ref, index); err == nil {
			_ = file.Close()
			t.Errorf("there is a result %d", index)
		}
	}

	// The first byte is there while the last is not yet made.
	release := make(chan struct{})
	g.on(Fetch, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, "last")
	})
	file, _, err = fetcher.Fetch(t.Context(), ref, 0)
	if err != nil {
		close(release)
		t.Fatal(err)
	}
	first := make([]byte, len("first"))
	if _, err := io.ReadFull(file, first); err != nil || string(first) != "first" {
		t.Errorf("got %q, %v", first, err)
	}
	close(release)
	if rest, err := io.ReadAll(file); err != nil || string(rest) != "last" {
		t.Errorf("got %q, %v", rest, err)
	}
	_ = file.Close()

	for status, want := range map[int]backends.Kind{
		http.StatusNoContent: backends.Busy, http.StatusPartialContent: backends.Busy, http401: backends.Refused,
		http.StatusNotFound: backends.Gone, http429: backends.Busy, http500: backends.Busy,
	} {
		g.on(Fetch, answer(status, nil, ""))
		file, _, err := fetcher.Fetch(t.Context(), ref, 0)
		if err == nil {
			_ = file.Close()
			t.Errorf("%d is a file", status)
			continue
		}
		g.refusedAs(t, "fetch", err, want)
	}

	g.on(Fetch, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	file, _, err = fetcher.Fetch(t.Context(), ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(file); err == nil {
		t.Error("half a file is a whole one")
	}
	_ = file.Close()
}

func reconciles(t *testing.T, g *stage) {
	reconciler, ok := g.backend.(backends.Reconciler)
	if !ok {
		t.Skip("the service finds no job by our token")
	}
	for _, done := range []bool{true, false} {
		g.double.Forget()
		before := g.double.Accepted()
		job := g.Job
		job.Token = backends.Token(map[bool]string{true: "taken", false: "lost"}[done])
		g.on(Submit, cut(done))
		_, err := g.backend.Submit(t.Context(), job)
		g.refusedAs(t, "submit", err, backends.Doubtful)

		// As long as the service is out of order nothing is known.
		for _, op := range []Op{Submit, Poll, Other} {
			g.on(op, answer(http503, nil, "{}"))
		}
		_, err = reconciler.Reconcile(t.Context(), job)
		g.refusedAs(t, "while it is out of order", err, backends.Busy, backends.Doubtful)
		for _, op := range []Op{Submit, Poll, Other} {
			g.on(op, nil)
		}

		ref, err := reconciler.Reconcile(t.Context(), job)
		taken := g.double.Accepted() - before
		switch {
		case err == nil && taken == 1:
			if status := g.polled(t, ref); status.State == backends.Unknown {
				t.Errorf("the job that was found is %+v", status)
			}
		case err != nil && !done && taken == 0:
			g.refusedAs(t, "there is no job", err, backends.Gone)
		default:
			t.Errorf("taken at first: %t; then %d jobs, %+v, %v", done, taken, ref, err)
		}
	}
}

func elsewhere(t *testing.T, g *stage) {
	ref := g.submitted(t)
	var told strings.Builder
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, values := range r.Header {
			for _, value := range values {
				told.WriteString(value + "\n")
			}
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(other.Close)

	// The same credential is configured, and the service has another address:
	// the job is where it was sent.
	moved := g.Backend(t, other.URL)
	if status, err := moved.Poll(t.Context(), ref); err != nil {
		t.Errorf("after the address has changed: %+v, %v", status, err)
	}
	// The job was sent to another address with another credential: that of today
	// does not go there.
	stolen := ref
	stolen.Base, stolen.Account = other.URL, "0000000000000000"
	stolen.Links = nil
	_, err := g.backend.Poll(t.Context(), stolen)
	g.refusedAs(t, "another address and account", err, backends.Refused)
	other.Close()
	if told.Len() > 0 {
		t.Errorf("the other address was told %s", told.String())
	}
}
