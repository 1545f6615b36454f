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

func testFetch(t *testing.T, f *fixture) {
	fetcher, ok := f.backend.(backends.Fetcher)
	if !ok {
		t.Skip("results are URLs")
	}
	ref := f.submit(t)
	f.mock.SetState(backends.Succeeded)
	status := f.poll(t, ref)
	if status.Results[0].URL != "" {
		if fetcher.OnlyBytes() {
			t.Errorf("OnlyBytes is true, but a result has the URL %s", status.Results[0].URL)
		}
		t.Skip("the mock service returns URLs")
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
	if len(read) == 0 || f.Content != nil && !bytes.Equal(read, f.Content) {
		t.Errorf("fetched %d bytes, want %d", len(read), len(f.Content))
	}
	if content.Size != -1 && content.Size != int64(len(read)) {
		t.Errorf("the file has %d bytes, Content.Size is %d", len(read), content.Size)
	}
	for _, index := range []int{-1, len(status.Results), 1 << 40} {
		if file, _, err := fetcher.Fetch(t.Context(), ref, index); err == nil {
			_ = file.Close()
			t.Errorf("the result with the index %d was fetched", index)
		}
	}

	// The first byte can be read before the service has sent the last one.
	release := make(chan struct{})
	f.override(Fetch, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
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
		f.override(Fetch, answer(status, nil, ""))
		file, _, err := fetcher.Fetch(t.Context(), ref, 0)
		if err == nil {
			_ = file.Close()
			t.Errorf("an answer with status %d is accepted as a file", status)
			continue
		}
		f.wantError(t, "fetch", err, want)
	}

	f.override(Fetch, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	file, _, err = fetcher.Fetch(t.Context(), ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(file); err == nil {
		t.Error("a truncated file was read without an error")
	}
	_ = file.Close()
}

func testReconcile(t *testing.T, f *fixture) {
	reconciler, ok := f.backend.(backends.Reconciler)
	if !ok {
		t.Skip("the service cannot find a job by its token")
	}
	for _, performed := range []bool{true, false} {
		f.mock.ForgetJobs()
		before := f.mock.Accepted()
		job := f.Job
		job.Token = backends.Token(map[bool]string{true: "accepted", false: "lost"}[performed])
		f.override(Submit, dropConnection(performed))
		_, err := f.backend.Submit(t.Context(), job)
		f.wantError(t, "submit", err, backends.Unconfirmed)

		// While the service returns errors, the outcome remains unknown.
		for _, op := range []Op{Submit, Poll, Other} {
			f.override(op, answer(http503, nil, "{}"))
		}
		_, err = reconciler.Reconcile(t.Context(), job)
		f.wantError(t, "reconcile while the service returns errors", err, backends.Busy, backends.Unconfirmed)
		for _, op := range []Op{Submit, Poll, Other} {
			f.override(op, nil)
		}

		ref, err := reconciler.Reconcile(t.Context(), job)
		accepted := f.mock.Accepted() - before
		switch {
		case err == nil && accepted == 1:
			if status := f.poll(t, ref); status.State == backends.Unknown {
				t.Errorf("the status of the reconciled job is %+v", status)
			}
		case err != nil && !performed && accepted == 0:
			f.wantError(t, "reconcile a lost submission", err, backends.Gone)
		default:
			t.Errorf("submission performed: %t; after Reconcile there are %d jobs: %+v, %v", performed, accepted, ref, err)
		}
	}
}

func testCredentialDestination(t *testing.T, f *fixture) {
	ref := f.submit(t)
	var received strings.Builder
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, values := range r.Header {
			for _, value := range values {
				received.WriteString(value + "\n")
			}
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(other.Close)

	// If only the configured address changes, the job is polled at the old address.
	moved := f.Backend(t, other.URL)
	if status, err := moved.Poll(t.Context(), ref); err != nil {
		t.Errorf("poll after a change of the address: %+v, %v", status, err)
	}
	// If the credential changes too, the new one is not sent to the old address.
	foreign := ref
	foreign.Base, foreign.Account = other.URL, "0000000000000000"
	foreign.Links = nil
	_, err := f.backend.Poll(t.Context(), foreign)
	f.wantError(t, "poll at another address with another credential", err, backends.Refused)
	other.Close()
	if received.Len() > 0 {
		t.Errorf("the other address received %s", received.String())
	}
}
