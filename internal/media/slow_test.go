package media

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// slowOrigin sends the content of an origin in parts of this size, one each 20
// ms; later requests are answered normally.
func (o *origin) slowOrigin(size int) *origin {
	return o.with(func(w http.ResponseWriter, r *http.Request, n int) bool {
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

// TestATooSlowSourceIsInterruptedAndContinued: a source that always sends a
// little is not silent, but would occupy its slot for an hour.
func TestATooSlowSourceIsInterruptedAndContinued(t *testing.T) {
	anywhere(t, func(t *testing.T, w *fixture) {
		w.rateInterval = 500 * time.Millisecond
		w.draftStep = 1
		o := newOrigin(t, film(12<<20)).slowOrigin(100)
		w.allow(o)
		w.refuses(of("task_a", o.URL), "less than 16 KiB per second")
		if n := len(o.asked()); n != 1 {
			t.Errorf("asked %d times", n)
		}
		w.same(w.keep(of("task_a", o.URL))[0], o.content)
	})
}

func TestAFastEnoughSourceIsNotInterrupted(t *testing.T) {
	anywhere(t, func(t *testing.T, w *fixture) {
		w.rateInterval = 50 * time.Millisecond
		o := newOrigin(t, film(1<<20)).slowOrigin(64 << 10)
		w.allow(o)
		w.same(w.keep(of("task_a", o.URL))[0], o.content)
		if n := len(o.asked()); n != 1 {
			t.Errorf("asked %d times", n)
		}
		// A copy that ends within the interval succeeds at any rate.
		w.rateInterval = time.Minute
		small := newOrigin(t, film(300)).slowOrigin(100)
		w.allow(small)
		w.same(w.keep(of("task_b", small.URL))[0], small.content)
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
	stuck.with(func(_ http.ResponseWriter, r *http.Request, _ int) bool {
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
		k := of(fmt.Sprintf("task_%d", i), stuck.URL)
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
			t.Fatalf("a copy has ended before all were under way: %v", err)
		}
	}
	k := of("task_quick", quick.URL)
	k.Backend = "quick"
	w.same(w.keep(k)[0], quick.content)
	if n := len(stuck.asked()); n != maxCopies {
		t.Errorf("%d copies of one backend are under way", n)
	}
	close(release)
	for range cap(kept) {
		if err := <-kept; err != nil {
			t.Error(err)
		}
	}
}
