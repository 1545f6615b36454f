package limit

import "testing"

func TestASemaphoreLimitsEachKeyAndTheTotal(t *testing.T) {
	t.Parallel()
	var s KeyedSemaphore
	take := func(key string, want bool) {
		t.Helper()
		if got := s.TryAcquire(key, 2, 3); got != want {
			t.Errorf("TryAcquire(%s) is %t, want %t", key, got, want)
		}
	}
	take("a", true)
	take("a", true)
	take("a", false)
	take("b", true)
	take("b", false) // the total is reached
	take("c", false)
	if n := s.Held(); n != 3 {
		t.Errorf("%d units are held, want 3", n)
	}
	s.Release("a")
	take("c", true)
	s.Release("a")
	s.Release("b")
	s.Release("c")
	if n := s.Held(); n != 0 || len(s.held) != 0 {
		t.Errorf("%d units are held, by %v", n, s.held)
	}
}
