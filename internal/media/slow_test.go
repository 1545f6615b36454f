package media

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// slowOrigin makes an origin answer the first request in parts of this size, one
// every 20 ms.
func (o *origin) slowOrigin(size int) *origin {
	return o.answerWith(func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(o.content)))
		for part := range slices.Chunk(o.content, size) {
			_, _ = w.Write(part)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(20 * time.Millisecond): // the rate of the source
			case <-r.Context().Done():
				return true
			}
		}
		return true
	})
}

// TestATooSlowSourceIsInterruptedAndContinued checks a source that sends a few bytes at a
// time: it is not silent, but would occupy its slot for an hour.
func TestATooSlowSourceIsInterruptedAndContinued(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		w.rateInterval = 500 * time.Millisecond
		w.draftStep = 1
		o := newOrigin(t, film(12<<20)).slowOrigin(100)
		w.allow(o)
		w.mustFail(keeping("task_a", o.URL), "less than 16 KiB per second")
		if n := len(o.requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
		w.checkContent(w.keep(keeping("task_a", o.URL))[0], o.content)
	})
}

func TestAFastEnoughSourceIsNotInterrupted(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		w.rateInterval = 50 * time.Millisecond
		o := newOrigin(t, film(1<<20)).slowOrigin(64 << 10)
		w.allow(o)
		w.checkContent(w.keep(keeping("task_a", o.URL))[0], o.content)
		if n := len(o.requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
		// A copy that ends within the interval succeeds at any rate.
		w.rateInterval = time.Minute
		small := newOrigin(t, film(300)).slowOrigin(100)
		w.allow(small)
		w.checkContent(w.keep(keeping("task_b", small.URL))[0], small.content)
	})
}

// TestBackendsHaveSeparateCopyLimits checks that the copies of one backend do
// not delay those of another.
func TestBackendsHaveSeparateCopyLimits(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Dir(t.TempDir(), 1))
	const more = 4
	arrived, release := make(chan struct{}, maxCopies+more), make(chan struct{})
	stuck := newOrigin(t, film(1000))
	stuck.answerWith(func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return false
	})
	quick := newOrigin(t, film(1000))
	w.allow(stuck, quick)

	kept := make(chan error, maxCopies+more)
	for i := range cap(kept) {
		k := keeping(fmt.Sprintf("task_%d", i), stuck.URL)
		k.Backend = "slow"
		go func() {
			_, err := w.Keep(t.Context(), k)
			kept <- err
		}()
	}
	for range maxCopies {
		select {
		case <-arrived:
		case err := <-kept:
			t.Fatalf("a copy has ended before all copies began: %v", err)
		}
	}
	k := keeping("task_quick", quick.URL)
	k.Backend = "quick"
	w.checkContent(w.keep(k)[0], quick.content)
	if n := len(stuck.requests()); n != maxCopies {
		t.Errorf("%d copies from one backend are running, want %d", n, maxCopies)
	}
	close(release)
	for range cap(kept) {
		if err := <-kept; err != nil {
			t.Error(err)
		}
	}
}
