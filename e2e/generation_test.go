package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
)

// resource is a task as the gateway returns it.
type resource struct {
	ID        string `json:"task_id"`
	VideoID   string `json:"id"` // in the form of /v1/videos
	Object    string `json:"object"`
	Model     string `json:"model"`
	Status    string `json:"status"`
	Progress  any    `json:"progress"` // a number in the form of /v1/videos
	Completed int64  `json:"completed_at"`
	Result    struct {
		URL  string   `json:"url"`
		URLs []string `json:"urls"`
	} `json:"result"`
	Error struct {
		Code   string `json:"code"`
		Reason string `json:"reason"`
	} `json:"error"`

	text string
}

// generation is a task that a user wants exactly once. They submit it with
// one idempotency key and one session id until it is acknowledged.
type generation struct {
	number int
	model  string
	words  string // words of the prompt that control the mock service
	task   string // its id; empty until it was acknowledged
}

// The models, by the API of their backend, and their prices.
const (
	film    = "video-film-1"    // at the platform API
	picture = "image-picture-1" // likewise
	clip    = "video-clip-1"    // at the generic API
	reel    = "video-reel-1"    // likewise; submitted in the form of /v1/videos
)

var costs = map[string]nano{film: 8 * unit / 100, picture: unit / 50, clip: 8 * unit / 100, reel: 8 * unit / 100}

// generationSite returns a site whose tasks run at a mock service.
func generationSite(u *mockService, r *receiver, more string) site {
	s := demonstration
	s.Log = "INFO"
	s.Routes = "modelgate_tasks"
	s.Limits = "unfinished_tasks 10000"
	s.Money = fmt.Sprintf(`
		family E film-* picture-* clip-* reel-*
		price video-* {
			second 0.01
		}
		price image-* {
			image 0.02
		}
		backend works {
			models film-* picture-*
			polls_per_second 150
			adapter platform {
				url %[1]s
				key {env.OPERATOR_KEY}
			}
		}
		backend others {
			models clip-* reel-*
			adapter generations {
				url %[1]s
				key {env.OPERATOR_KEY}
			}
		}
		%[2]s
		%[3]s
	`, u.url(), r.option(), more)
	return s
}

func (o *generation) prompt() string {
	return strings.TrimSpace(fmt.Sprintf("%s %d %s", o.model, o.number, o.words))
}

// api returns the API at which the task runs.
func (o *generation) api() api {
	if o.model == clip || o.model == reel {
		return generic
	}
	return platform
}

// fails reports whether the task must fail.
func (o *generation) fails() bool { return strings.Contains(o.words, failsWord) }

// request returns the submission.
func (o *generation) request(c *gatewayUser) *http.Request {
	path, contentType := "/v1/platform/video", "application/json"
	if strings.HasPrefix(o.model, "image-") {
		path = "/v1/platform/image"
	}
	body, err := json.Marshal(map[string]any{
		"model": o.model, "prompt": o.prompt(), "session_id": o.session(), "session_context": o.context(),
	})
	if err == nil && o.model == reel {
		path = "/v1/videos"
		body, contentType, err = openai.VideoNewParams{Model: reel, Prompt: o.prompt()}.MarshalMultipart()
	}
	if err != nil {
		c.g.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.g.t.Context(), http.MethodPost, c.g.url(path), bytes.NewReader(body))
	if err != nil {
		c.g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Idempotency-Key", fmt.Sprintf("key of session-%d", o.number))
	return req
}

// session returns the session id of the task; /v1/videos has none.
func (o *generation) session() string {
	if o.model == reel {
		return ""
	}
	return fmt.Sprintf("session-%d", o.number)
}

// context returns the session context of the task.
func (o *generation) context() string {
	if o.model == reel {
		return ""
	}
	return "of " + o.session()
}

// retryInterval is the interval at which a client repeats a request.
const retryInterval = 20 * time.Millisecond

// submit submits the task until it is acknowledged, while the gateway may be
// killed and restarted. It fails the test after some time.
func (o *generation) submit(c *gatewayUser) {
	o.submitAs(func() *gatewayUser { return c })
}

// submitAs is submit; next returns the user of each attempt.
func (o *generation) submitAs(next func() *gatewayUser) {
	var c *gatewayUser
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * waitLimit); time.Now().Before(deadline); <-tick.C {
		c = next()
		t, status, err := c.read(o.request(c))
		switch {
		case err != nil || status == http.StatusServiceUnavailable: // the gateway stops or starts
		case status == http.StatusOK && cmp.Or(t.ID, t.VideoID) != "":
			o.task = cmp.Or(t.ID, t.VideoID)
			return
		default:
			c.g.t.Errorf("%s: got %d %s", o.prompt(), status, t.text)
			return
		}
	}
	c.g.t.Errorf("%s was never acknowledged", o.prompt())
}

// read sends a request and decodes the task in the answer.
func (c *gatewayUser) read(req *http.Request) (t resource, status int, err error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return t, 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return t, 0, err
	}
	t.text = string(text)
	if err := json.Unmarshal(text, &t); err != nil {
		return t, resp.StatusCode, fmt.Errorf("%w: %s", err, text)
	}
	return t, resp.StatusCode, nil
}

// poll reads a task. wait is how many seconds the gateway may wait for a
// change.
func (c *gatewayUser) poll(task string, wait int) resource {
	c.g.t.Helper()
	req, err := http.NewRequestWithContext(c.g.t.Context(), http.MethodGet, fmt.Sprintf("%s?wait=%d", c.g.url("/v1/platform/tasks/"+task), wait), nil)
	if err != nil {
		c.g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	t, status, err := c.read(req)
	if err != nil || status != http.StatusOK {
		c.g.t.Fatalf("the task %s: got %d %s (%v)", task, status, t.text, err)
	}
	return t
}

// leaseLength is how long the task of a killed process cannot be processed by
// another one.
const leaseLength = time.Minute

// outcome waits for the end of a task. A task with an unconfirmed submission does
// not end for now and is returned as it is.
func (c *gatewayUser) outcome(o *generation) resource {
	c.g.t.Helper()
	wait := 0
	for deadline := time.Now().Add(2 * leaseLength); ; wait = 10 {
		t := c.poll(o.task, wait)
		if t.Completed != 0 || t.Status == "pending" && o.api() == generic {
			return t
		}
		if time.Now().After(deadline) {
			c.g.t.Errorf("%s is still %s", o.prompt(), t.text)
			return t
		}
	}
}

// fetch returns a file.
func (c *gatewayUser) fetch(link string) []byte {
	c.g.t.Helper()
	resp, err := c.http.Get(link)
	if err != nil {
		c.g.t.Fatal(err)
	}
	defer resp.Body.Close()
	file, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.g.t.Fatalf("%s: %s (%v)", link, resp.Status, err)
	}
	return file
}

// taskTotals sums up the outcomes of all tasks.
type taskTotals struct {
	charged nano
	held    nano
	ended   map[string]int // by status
}

// check compares a task with the records of the mock service and of the
// receiver, and adds it to the totals.
func (b *taskTotals) check(c *gatewayUser, o *generation, u *mockService, r *receiver, t resource) {
	c.g.t.Helper()
	wrong := func(format string, args ...any) {
		c.g.t.Helper()
		c.g.t.Errorf("%s, %s: %s", o.prompt(), t.text, fmt.Sprintf(format, args...))
	}
	subs := u.submissions(o.prompt())
	jobs, sessions := map[string]bool{}, map[string]bool{}
	cut := false
	for _, s := range subs {
		if s.job != "" {
			jobs[s.job] = true
		}
		sessions[s.Session] = true
		cut = cut || s.cut
	}
	if len(jobs) > 1 || len(sessions) > 1 {
		wrong("the mock service has %d jobs of %d sessions: %+v", len(jobs), len(sessions), subs)
	}
	if o.api() == generic && len(subs) > 1 {
		wrong("it was submitted %d times", len(subs))
	}
	b.ended[t.Status]++
	switch ids, reported := r.of(o.task); {
	case t.Status == "pending":
		// Whether there is a job is unknown, and the job is not submitted
		// again.
		b.held += costs[o.model]
		if len(ids) > 0 {
			wrong("callbacks arrived: %q", ids)
		}
		return
	case cut && o.api() == generic:
		wrong("it ended although its submission is unconfirmed")
	case len(ids) != 1:
		wrong("its callbacks have the ids %q", ids)
	case reported.Type != map[bool]string{true: "task.failed", false: "task.succeeded"}[o.fails()],
		reported.Data.Session != o.session(), reported.Data.Context != o.context(),
		reported.Data.Status != t.Status, reported.Data.Completed != t.Completed, !slices.Equal(reported.Data.Result.URLs, t.Result.URLs), reported.Data.Error != t.Error:
		wrong("its callback is %s", reported.text)
	}
	if len(jobs) != 1 {
		wrong("the mock service has no job of it")
	}
	if o.fails() {
		if t.Status != "failed" || t.Error.Reason != "CONTENT_REJECTED" {
			wrong("it did not fail")
		}
		return
	}
	b.charged += costs[o.model]
	if t.Status != "success" || len(t.Result.URLs) != 1 {
		wrong("it has no result")
	}
}

// checkMoney compares the totals with the ledger.
func (b *taskTotals) checkMoney(c *gatewayUser, credit nano) {
	c.g.t.Helper()
	c.g.verify()
	c.g.verifyByCommand("--address", c.g.Admin)
	if w := c.g.wallet(c.name); w.Balance != credit-b.charged || w.Held != b.held || w.Owed != 0 || w.Reserved != 0 {
		c.g.t.Errorf("the wallet is %+v after a credit of %v, charges of %v and holds of %v", w, credit, b.charged, b.held)
	}
	lines := c.g.ledger(c.name)
	if paid := -sumOf(lines, "settle"); paid != b.charged {
		c.g.t.Errorf("%v were paid, want %v", paid, b.charged)
	}
	kinds := map[string]int{}
	for _, line := range lines {
		kinds[line.Kind]++
	}
	want := map[string]int{"hold": 0, "settle": b.ended["success"], "void": b.ended["failed"]}
	for _, n := range b.ended {
		want["hold"] += n
	}
	for kind, n := range want {
		if kinds[kind] != n {
			c.g.t.Errorf("there are %d lines of the kind %s, want %d", kinds[kind], kind, n)
		}
	}
}

// awaitAll waits for the callbacks of all finished tasks.
func (r *receiver) awaitAll(t *testing.T, tasks []string) {
	t.Helper()
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(leaseLength); ; <-tick.C {
		missing := slices.DeleteFunc(slices.Clone(tasks), func(task string) bool {
			ids, _ := r.of(task)
			return len(ids) > 0
		})
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("no callback arrived for %q", missing)
			return
		}
	}
}
