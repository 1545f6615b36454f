package backendstest

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Jobs are the jobs of a double: those methods of [Double] that are the same
// for all services, and what its handler asks. The zero value has none.
type Jobs struct {
	mu        sync.Mutex
	taken     int
	known     map[string]string // ids, with the token of each
	cancelled map[string]bool
	state     backends.State
	word      string
	link      string
}

// DefaultLink is an address of results for doubles to begin with.
const DefaultLink = "https://files.example.com/result.mp4"

// Take takes a job with a token, which may be empty, and returns its id.
func (j *Jobs) Take(token string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.taken++
	if j.known == nil {
		j.known, j.cancelled = make(map[string]string), make(map[string]bool)
	}
	id := fmt.Sprintf("job_%d", j.taken)
	j.known[id] = token
	return id
}

// Find returns the id of the job with a token, or "".
func (j *Jobs) Find(token string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, t := range j.known {
		if t == token {
			return id
		}
	}
	return ""
}

// Known tells whether there is a job.
func (j *Jobs) Known(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, known := j.known[id]
	return known
}

// Cancel cancels a job that is not over, and tells whether it was one.
func (j *Jobs) Cancel(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state == backends.Succeeded || j.state == backends.Failed {
		return false
	}
	j.cancelled[id] = true
	return true
}

// Cancelled tells whether a job was cancelled.
func (j *Jobs) Cancelled(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cancelled[id]
}

// State returns the state of all jobs, and the word for it among a service's.
func (j *Jobs) State(words map[backends.State]string) (backends.State, string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	state := j.state
	if state == "" {
		state = backends.Queued
	}
	if j.word != "" {
		return state, j.word
	}
	return state, words[state]
}

// Address returns the address of results.
func (j *Jobs) Address() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.link
}

// SetLink sets the address of results. A double whose results are links has a
// method Link that calls it.
func (j *Jobs) SetLink(address string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.link = address
}

// Accepted implements Double.
func (j *Jobs) Accepted() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.taken
}

// Turn implements Double.
func (j *Jobs) Turn(state backends.State) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state = state
}

// Say implements Double.
func (j *Jobs) Say(word string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.word = word
}

// Forget implements Double.
func (j *Jobs) Forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.known)
}

// JSON writes an answer of a double.
func JSON(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, format, args...)
}
