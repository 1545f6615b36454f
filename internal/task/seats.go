package task

import "sync"

// seats bound what runs at once. The zero value is ready to use.
type seats struct {
	mu     sync.Mutex
	taken  int
	wanted bool // somebody has asked for more than were left
}

// room is how many of the seats asked for are left, where there are most in all.
// If they are fewer, the next that is given back is wanted.
func (s *seats) room(asked, most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := max(0, min(asked, most-s.taken))
	s.wanted = left < asked
	return left
}

func (s *seats) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken++
}

// give gives a seat back, and tells whether it is wanted.
func (s *seats) give() (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	wanted, s.wanted = s.wanted, false
	return wanted
}
