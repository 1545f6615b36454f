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

// face is one of the interfaces by which a studio is spoken to.
type face string

const (
	// platform is the interface of this very gateway, where a session id is taken
	// once: whoever does not know whether a job was taken may ask again.
	platform face = "platform"

	// generic is /v1/video/generations, where a job that is sent twice is done
	// twice.
	generic face = "generic"
)

// A studio is a generation service over HTTP. It notes what it is asked, and
// when: its books are what the gateway's are held against.
type studio struct {
	*backend
	cue *cue

	links func(prompt string) string // of results; nil: to its own files
	away  []string                   // where /away/<n> redirects to
	takes time.Duration              // of the answer to a poll

	mu    sync.Mutex
	shut  bool            // no job ends
	jobs  map[string]*job // by the studio's ids
	asked map[string][]submission
	hasty []string // polls that came beside another of the same job, or too soon after
}

// submission is one request for a job; those for the same have the same prompt.
type submission struct {
	Prompt  string `json:"prompt"`
	Session string `json:"session_id"` // empty at the generic face
	face    face
	job     string // what it came to; empty: it was cut off before
	cut     bool   // nobody was there any more to be answered
}

// job is what a studio makes.
type job struct {
	id, prompt string
	face       face
	image      bool

	looks    int // polls that were begun
	looking  int // under way
	lookedAt time.Time
}

// The words of a prompt that a studio obeys.
const (
	slowWord  = "slow"  // it runs at the first poll
	failsWord = "fails" // it fails
)

// leastPace is how soon after a poll the next may come: 2 s less a fifth, and
// some for the clocks of a busy machine.
const leastPace = 1500 * time.Millisecond

func newStudio(t *testing.T) *studio {
	t.Helper()
	u := &studio{cue: new(cue), jobs: map[string]*job{}, asked: map[string][]submission{}}
	u.backend = newBackend(t, u.play)
	return u
}

// url is the address of the studio.
func (u *studio) url() string { return "http://" + u.address() }

// open lets jobs end from now on, or not.
func (u *studio) open(yes bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shut = !yes
}

// play is the studio's side of all that it is asked.
func (u *studio) play(s *stage, a *ask) {
	path, _, _ := strings.Cut(a.URI, "?")
	id := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case strings.HasPrefix(path, "/files/"):
		u.deliver(s, a, u.job(id))
	case strings.HasPrefix(path, "/away/"):
		n, _ := strconv.Atoi(id)
		answers(http.StatusFound, "", "Location", u.away[n])(s, a)
	case a.Method == http.MethodPost && path == "/v1/video/generations":
		u.take(s, a, generic, false)
	case a.Method == http.MethodPost:
		u.take(s, a, platform, path == "/v1/platform/image")
	default:
		u.tell(s, a, u.job(id))
	}
}

func (u *studio) job(id string) *job {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.jobs[id]
}

// take answers a submission.
func (u *studio) take(s *stage, a *ask, by face, image bool) {
	sub := submission{face: by}
	if err := json.Unmarshal(a.Body, &sub); err != nil {
		u.t.Errorf("the studio was sent %s: %v", a.Body, err)
	}
	u.mu.Lock()
	number := len(u.asked[sub.Prompt])
	u.asked[sub.Prompt] = append(u.asked[sub.Prompt], sub)
	u.mu.Unlock()
	note := func(change func(sub *submission)) {
		u.mu.Lock()
		defer u.mu.Unlock()
		change(&u.asked[sub.Prompt][number])
	}
	before := moment{"before a job is accepted", by}
	if number > 0 {
		before = lookedFor
	}
	if u.cue.hold(before, a) {
		note(func(sub *submission) { sub.cut = true })
		return
	}
	j, first := u.accept(sub, image)
	note(func(sub *submission) { sub.job = j.id })
	if u.cue.hold(moment{"when a job is accepted and nobody knows", by}, a) {
		note(func(sub *submission) { sub.cut = true })
		return
	}
	switch {
	case !first:
		answers(http.StatusConflict, fmt.Sprintf(`{"code":"DUPLICATE_SESSION_ID","message":"it is in use","task_id":%q}`, j.id))(s, a)
	case by == generic:
		answers(http.StatusCreated, fmt.Sprintf(`{"id":%q,"task_id":%[1]q,"object":"video","status":"processing"}`, j.id))(s, a)
	default:
		answers(http.StatusOK, fmt.Sprintf(`{"task_id":%q,"status":"queued"}`, j.id))(s, a)
	}
	u.cue.pass(moment{"when a job is accepted and the answer is out", by})
}

// accept makes a job of a submission, or returns the one that its session has.
func (u *studio) accept(sub submission, image bool) (j *job, first bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := fmt.Sprintf("job-%d", len(u.jobs)+1)
	if sub.face == platform {
		id = "job-" + sub.Session
	}
	if j = u.jobs[id]; j != nil {
		return j, false
	}
	j = &job{id: id, prompt: sub.Prompt, face: sub.face, image: image}
	u.jobs[id] = j
	return j, true
}

// tell answers how a job stands.
func (u *studio) tell(s *stage, a *ask, j *job) {
	if j == nil {
		answers(http.StatusNotFound, `{"code":"TASK_NOT_FOUND","message":"there is no such task"}`)(s, a)
		return
	}
	state := u.look(j)
	defer u.looked(j)
	if u.cue.hold(moment{what: "before it is told that a job is " + string(state)}, a) {
		return
	}
	select {
	case <-time.After(u.takes):
	case <-a.Gone:
		return
	}
	link := u.url() + "/files/" + j.id
	if u.links != nil {
		link = u.links(j.prompt)
	}
	answers(http.StatusOK, j.words(state, link))(s, a)
	u.cue.pass(moment{what: "when it is told that a job is " + string(state)})
}

// state is where a job stands.
type state string

const (
	isRunning state = "running"
	isDone    state = "done"
	hasFailed state = "failed"
)

// look begins a poll, and notes one that should not have come.
func (u *studio) look(j *job) state {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if since := now.Sub(j.lookedAt); j.looking > 0 || since < leastPace {
		u.hasty = append(u.hasty, fmt.Sprintf("%s: beside %d others, %v after the one before", j.id, j.looking, since))
	}
	j.looks++
	j.looking++
	j.lookedAt = now
	switch {
	case u.shut, strings.Contains(j.prompt, slowWord) && j.looks == 1:
		return isRunning
	case strings.Contains(j.prompt, failsWord):
		return hasFailed
	}
	return isDone
}

func (u *studio) looked(j *job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	j.looking--
}

// words are what is answered about a job.
func (j *job) words(in state, link string) string {
	if j.face == generic {
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

// arguments are those of the words of a state: only a success has a link.
func arguments(in state, id, link string) []any {
	if in == isDone {
		return []any{id, link}
	}
	return []any{id}
}

// file is what a job has made: the head of a picture or of a film, and then
// bytes that are of this job alone.
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
func (u *studio) deliver(s *stage, a *ask, j *job) {
	file := j.file()
	s.head(http.StatusOK, "Content-Length", fmt.Sprint(len(file)), "Content-Type", "application/octet-stream")
	half := len(file) / 2
	s.say(string(file[:half]))
	if u.cue.hold(moment{what: "in the middle of a file"}, a) {
		return
	}
	s.say(string(file[half:]))
	u.cue.pass(moment{what: "at the end of a file"})
}

// submissions returns what was asked for under a prompt.
func (u *studio) submissions(prompt string) []submission {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.asked[prompt])
}

// checkPolls wants no job to have been asked for twice at a time, or too often.
func (u *studio) checkPolls() {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.hasty) > 0 {
		u.t.Errorf("%d polls came too soon, first: %s", len(u.hasty), u.hasty[0])
	}
}

// moment is something that a studio or a receiver of callbacks comes to.
type moment struct {
	what string
	by   face // where it is one of a submission
}

var (
	// lookedFor is when a job in doubt is looked for, by being asked for again.
	lookedFor = moment{what: "when a job in doubt is looked for"}

	// anything is every moment.
	anything = moment{what: "at any moment"}
)

// cue has a test act at a moment of the work of others.
type cue struct {
	mu      sync.Mutex
	at      moment
	left    int
	reached chan struct{} // nil: nobody waits
}

// await returns a channel that is closed when the moment comes for the nth time
// from now on.
func (c *cue) await(at moment, n int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.left, c.reached = at, n, make(chan struct{})
	return c.reached
}

// pass tells that a moment has come, and returns whether just this was awaited.
func (c *cue) pass(at moment) bool {
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

// hold is pass, and lets nothing go on at a moment that was awaited until the
// other side is gone.
func (c *cue) hold(at moment, a *ask) bool {
	if !c.pass(at) {
		return false
	}
	select {
	case <-a.Gone:
	case <-time.After(patience):
	}
	return true
}

// made is the file of the job of a prompt; nil when there is none.
func (u *studio) made(prompt string) []byte {
	for _, sub := range u.submissions(prompt) {
		if sub.job != "" {
			return u.job(sub.job).file()
		}
	}
	return nil
}
