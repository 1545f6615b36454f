package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// api is one of the APIs of the mock service.
type api string

const (
	// platform is the gateway's own interface, which accepts a session id once.
	// A submission whose outcome is unknown may be repeated.
	platform api = "platform"

	// generic is /v1/video/generations, where a repeated submission creates a
	// second job.
	generic api = "generic"
)

// mockService is a generation service over HTTP. It records every request and
// its time, so that tests can compare its records with the gateway's.
type mockService struct {
	*backend
	checkpoints *checkpoints

	links        func(prompt string) string // URLs of results; nil: its own files
	away         []string                   // redirect targets of /away/<n>
	pollDuration time.Duration              // duration of a poll

	mu         sync.Mutex
	held       bool            // no job ends
	jobs       map[string]*job // by job id
	byPrompt   map[string][]submission
	violations []string // polls that were concurrent for one job, or too soon
}

// submission is one request for a job. All requests for one job have the same
// prompt.
type submission struct {
	Prompt  string `json:"prompt"`
	Session string `json:"session_id"` // empty at the generic API
	api     api
	job     string // job id; empty if the connection broke before
	cut     bool   // the client had disconnected before the answer
}

// job is a job of the mock service.
type job struct {
	id, prompt string
	api        api
	image      bool

	polls    int // polls that have started
	active   int // polls in progress
	polledAt time.Time
}

// Words of a prompt that control the mock service.
const (
	slowWord  = "slow"  // it is running at the first poll
	failsWord = "fails" // it fails
)

// minPollInterval is the shortest interval between polls: 2 s less a fifth,
// with tolerance for a busy machine.
const minPollInterval = 1500 * time.Millisecond

func newMockService(t *testing.T) *mockService {
	t.Helper()
	u := &mockService{checkpoints: new(checkpoints), jobs: map[string]*job{}, byPrompt: map[string][]submission{}}
	u.backend = newBackend(t, u.serve)
	return u
}

// url returns the URL of the mock service.
func (u *mockService) url() string { return "http://" + u.address() }

// open sets whether jobs end from now on.
func (u *mockService) open(yes bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.held = !yes
}

// serve answers a request.
func (u *mockService) serve(s *scriptWriter, a *recordedRequest) {
	path, _, _ := strings.Cut(a.URI, "?")
	id := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case strings.HasPrefix(path, "/files/"):
		u.deliver(s, a, u.job(id))
	case strings.HasPrefix(path, "/away/"):
		n, _ := strconv.Atoi(id)
		respond(http.StatusFound, "", "Location", u.away[n])(s, a)
	case a.Method == http.MethodPost && path == "/v1/video/generations":
		u.take(s, a, generic, false)
	case a.Method == http.MethodPost:
		u.take(s, a, platform, path == "/v1/platform/image")
	default:
		u.writeStatus(s, a, u.job(id))
	}
}

func (u *mockService) job(id string) *job {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.jobs[id]
}

// take answers a submission.
func (u *mockService) take(s *scriptWriter, a *recordedRequest, by api, image bool) {
	sub := submission{api: by}
	if err := json.Unmarshal(a.Body, &sub); err != nil {
		u.t.Errorf("the mock service got %s: %v", a.Body, err)
	}
	u.mu.Lock()
	number := len(u.byPrompt[sub.Prompt])
	u.byPrompt[sub.Prompt] = append(u.byPrompt[sub.Prompt], sub)
	u.mu.Unlock()
	note := func(change func(sub *submission)) {
		u.mu.Lock()
		defer u.mu.Unlock()
		change(&u.byPrompt[sub.Prompt][number])
	}
	before := checkpoint{"before a job is accepted", by}
	if number > 0 {
		before = repeatedSubmission
	}
	if u.checkpoints.hold(before, a) {
		note(func(sub *submission) { sub.cut = true })
		return
	}
	j, first := u.accept(sub, image)
	note(func(sub *submission) { sub.job = j.id })
	if u.checkpoints.hold(checkpoint{"when a job is accepted and not confirmed", by}, a) {
		note(func(sub *submission) { sub.cut = true })
		return
	}
	switch {
	case !first:
		respond(http.StatusConflict, fmt.Sprintf(`{"code":"DUPLICATE_SESSION_ID","message":"it is in use","task_id":%q}`, j.id))(s, a)
	case by == generic:
		respond(http.StatusCreated, fmt.Sprintf(`{"id":%q,"task_id":%[1]q,"object":"video","status":"processing"}`, j.id))(s, a)
	default:
		respond(http.StatusOK, fmt.Sprintf(`{"task_id":%q,"status":"queued"}`, j.id))(s, a)
	}
	u.checkpoints.pass(checkpoint{"when a job is accepted and the answer is out", by})
}

// accept creates a job for a submission, or returns the job that its session
// has.
func (u *mockService) accept(sub submission, image bool) (j *job, first bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := fmt.Sprintf("job-%d", len(u.jobs)+1)
	if sub.api == platform {
		id = "job-" + sub.Session
	}
	if j = u.jobs[id]; j != nil {
		return j, false
	}
	j = &job{id: id, prompt: sub.Prompt, api: sub.api, image: image}
	u.jobs[id] = j
	return j, true
}

// writeStatus answers a poll.
func (u *mockService) writeStatus(s *scriptWriter, a *recordedRequest, j *job) {
	if j == nil {
		respond(http.StatusNotFound, `{"code":"TASK_NOT_FOUND","message":"there is no such task"}`)(s, a)
		return
	}
	state := u.beginPoll(j)
	defer u.endPoll(j)
	if u.checkpoints.hold(checkpoint{what: "before the gateway reads that a job is " + string(state)}, a) {
		return
	}
	select {
	case <-time.After(u.pollDuration):
	case <-a.Gone:
		return
	}
	link := u.url() + "/files/" + j.id
	if u.links != nil {
		link = u.links(j.prompt)
	}
	respond(http.StatusOK, j.statusJSON(state, link))(s, a)
	u.checkpoints.pass(checkpoint{what: "after the gateway has read that a job is " + string(state)})
}

// state is the state of a job.
type state string

const (
	isRunning state = "running"
	isDone    state = "done"
	hasFailed state = "failed"
)

// beginPoll begins a poll and records a violation of the poll interval.
func (u *mockService) beginPoll(j *job) state {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if since := now.Sub(j.polledAt); j.active > 0 || since < minPollInterval {
		u.violations = append(u.violations, fmt.Sprintf("%s: during %d others, %v after the previous poll", j.id, j.active, since))
	}
	j.polls++
	j.active++
	j.polledAt = now
	switch {
	case u.held, strings.Contains(j.prompt, slowWord) && j.polls == 1:
		return isRunning
	case strings.Contains(j.prompt, failsWord):
		return hasFailed
	}
	return isDone
}

func (u *mockService) endPoll(j *job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	j.active--
}

// statusJSON returns the JSON of a job's status.
func (j *job) statusJSON(in state, link string) string {
	if j.api == generic {
		return fmt.Sprintf(map[state]string{
			isRunning: `{"task_id":%q,"status":"processing"}`,
			isDone:    `{"task_id":%q,"status":"succeeded","url":%q,"format":"mp4"}`,
			hasFailed: `{"task_id":%q,"status":"failed","error":{"code":"content_rejected","message":"not that"}}`,
		}[in], arguments(in, j.id, link)...)
	}
	return fmt.Sprintf(map[state]string{
		isRunning: `{"task_id":%q,"status":"in_progress","progress":"40%%"}`,
		isDone:    `{"task_id":%q,"status":"success","progress":"100%%","completed_at":1800000009,"result":{"url":%[2]q,"urls":[%[2]q]}}`,
		hasFailed: `{"task_id":%q,"status":"failed","progress":"0%%","completed_at":1800000009,"error":{"code":"TASK_FAILED","message":"not that","reason":"CONTENT_REJECTED"}}`,
	}[in], arguments(in, j.id, link)...)
}

// arguments returns the arguments of that JSON: only a success has a URL.
func arguments(in state, id, link string) []any {
	if in == isDone {
		return []any{id, link}
	}
	return []any{id}
}

// file returns the file of a job: the header of a picture or a film, and then
// bytes that only this job has.
func (j *job) file() []byte {
	const length = 96 << 10
	content := slices.Repeat([]byte(j.id+" "), length/(len(j.id)+1))
	if j.image {
		return slices.Concat([]byte("\x89PNG\r\n\x1a\n"), content)
	}
	film := []byte("\x00\x00\x00\x14ftypisom\x00\x00\x02\x00mp41")
	film = binary.BigEndian.AppendUint32(film, uint32(8+len(content)))
	return slices.Concat(film, []byte("mdat"), content)
}

// deliver sends the file of a job.
func (u *mockService) deliver(s *scriptWriter, a *recordedRequest, j *job) {
	file := j.file()
	s.writeHeader(http.StatusOK, "Content-Length", fmt.Sprint(len(file)), "Content-Type", "application/octet-stream")
	half := len(file) / 2
	s.write(string(file[:half]))
	if u.checkpoints.hold(checkpoint{what: "in the middle of a file"}, a) {
		return
	}
	s.write(string(file[half:]))
	u.checkpoints.pass(checkpoint{what: "at the end of a file"})
}

// submissions returns the submissions with a prompt.
func (u *mockService) submissions(prompt string) []submission {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.byPrompt[prompt])
}

// checkPolls checks that no job was polled concurrently or too often.
func (u *mockService) checkPolls() {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.violations) > 0 {
		u.t.Errorf("%d polls were too early or concurrent, first: %s", len(u.violations), u.violations[0])
	}
}

// checkpoint is a moment in the work of a mock service or a receiver of
// callbacks.
type checkpoint struct {
	what string
	by   api // of a submission
}

var (
	// repeatedSubmission is the repeated submission of an unconfirmed job.
	repeatedSubmission = checkpoint{what: "when an unconfirmed job is searched for"}

	// anything is every checkpoint.
	anything = checkpoint{what: "at any moment"}
)

// checkpoints lets a test act at a checkpoint.
type checkpoints struct {
	mu      sync.Mutex
	at      checkpoint
	left    int
	reached chan struct{} // nil: no test waits
}

// await returns a channel that is closed when the checkpoint is reached for the
// nth time from now on.
func (c *checkpoints) await(at checkpoint, n int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.left, c.reached = at, n, make(chan struct{})
	return c.reached
}

// pass reports that a checkpoint was reached. It returns whether the test
// awaited it.
func (c *checkpoints) pass(at checkpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reached == nil || c.at != at && c.at != anything {
		return false
	}
	if c.left--; c.left > 0 {
		return false
	}
	close(c.reached)
	c.reached = nil
	return c.at == at
}

// hold is pass. If the test awaited the checkpoint, hold blocks until the
// client has disconnected.
func (c *checkpoints) hold(at checkpoint, a *recordedRequest) bool {
	if !c.pass(at) {
		return false
	}
	select {
	case <-a.Gone:
	case <-time.After(waitLimit):
	}
	return true
}

// made returns the file of the job with a prompt, or nil if there is none.
func (u *mockService) made(prompt string) []byte {
	for _, sub := range u.submissions(prompt) {
		if sub.job != "" {
			return u.job(sub.job).file()
		}
	}
	return nil
}
