package backendstest

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Jobs are the jobs of a mock service. It implements the methods of
// [MockService] that do not depend on the vendor. The zero value has no jobs.
// Its methods may be called concurrently.
type Jobs struct {
	mu         sync.Mutex
	accepted   int
	tokens     map[string]string // token by job id
	cancelled  map[string]bool
	state      backends.State
	statusWord string
	url        string
}

// DefaultURL is a result URL for mock services.
const DefaultURL = "https://files.example.com/result.mp4"

// Accept adds a job with a token, which may be empty, and returns its id.
func (j *Jobs) Accept(token string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.accepted++
	if j.tokens == nil {
		j.tokens, j.cancelled = make(map[string]string), make(map[string]bool)
	}
	id := fmt.Sprintf("job_%d", j.accepted)
	j.tokens[id] = token
	return id
}

// Find returns the id of the job with a token, or "".
func (j *Jobs) Find(token string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, t := range j.tokens {
		if t == token {
			return id
		}
	}
	return ""
}

// Exists reports whether there is a job with this id.
func (j *Jobs) Exists(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, found := j.tokens[id]
	return found
}

// Cancel cancels a job and reports true, unless all jobs have ended.
func (j *Jobs) Cancel(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state == backends.Succeeded || j.state == backends.Failed {
		return false
	}
	j.cancelled[id] = true
	return true
}

// Cancelled reports whether a job was cancelled.
func (j *Jobs) Cancelled(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cancelled[id]
}

// State returns the state of all jobs and the vendor's word for it, taken from
// words.
func (j *Jobs) State(words map[backends.State]string) (backends.State, string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	state := j.state
	if state == "" {
		state = backends.Queued
	}
	if j.statusWord != "" {
		return state, j.statusWord
	}
	return state, words[state]
}

// URL returns the URL of all results.
func (j *Jobs) URL() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.url
}

// SetURL sets the URL of all results. A mock service whose results are URLs
// calls it in its method SetResultURL.
func (j *Jobs) SetURL(address string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.url = address
}

// Accepted implements MockService.
func (j *Jobs) Accepted() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.accepted
}

// SetState implements MockService.
func (j *Jobs) SetState(state backends.State) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state = state
}

// SetStatusWord implements MockService.
func (j *Jobs) SetStatusWord(statusWord string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.statusWord = statusWord
}

// ForgetJobs implements MockService.
func (j *Jobs) ForgetJobs() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.tokens)
}

// JSON writes a JSON answer of a mock service.
func JSON(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, format, args...)
}
