package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// resource is a task as its caller reads it.
type resource struct {
	ID        string `json:"task_id"`
	Object    string `json:"object"`
	Model     string `json:"model"`
	Status    string `json:"status"`
	Progress  string `json:"progress"`
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

// A commission is something to be generated, once. It is asked for with one
// idempotency key and one session id until it is acknowledged.
type commission struct {
	number int
	model  string
	words  string // of the prompt, which a studio obeys
	task   string // by which it was acknowledged; empty: not yet
}

// What there is to be asked for at a studio, by the backend that each model has,
// and what it costs.
const (
	film    = "video-film-1"    // at the platform face
	picture = "image-picture-1" // likewise
	clip    = "video-clip-1"    // at the generic face
)

var costs = map[string]nano{film: 8 * unit / 100, picture: unit / 50, clip: 8 * unit / 100}

// studioSite is a site whose generations are made at a studio.
func studioSite(u *studio, r *receiver, more string) site {
	s := demonstration
	s.Log = "INFO"
	s.Routes = "modelgate_tasks"
	s.Limits = "unfinished_tasks 10000"
	s.Money = fmt.Sprintf(`
		family E film-* picture-* clip-*
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
			models clip-*
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

func (o *commission) prompt() string {
	return strings.TrimSpace(fmt.Sprintf("%s %d %s", o.model, o.number, o.words))
}

// face is that of the studio at which it is made.
func (o *commission) face() face {
	if o.model == clip {
		return generic
	}
	return platform
}

// fails tells whether it comes to nothing.
func (o *commission) fails() bool { return strings.Contains(o.words, failsWord) }

// request asks for it.
func (o *commission) request(c *customer) *http.Request {
	path := "/v1/platform/video"
	if strings.HasPrefix(o.model, "image-") {
		path = "/v1/platform/image"
	}
	body, err := json.Marshal(map[string]any{
		"model": o.model, "prompt": o.prompt(), "session_id": o.session(), "session_context": "of " + o.session(),
	})
	if err != nil {
		c.g.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.g.t.Context(), http.MethodPost, c.g.url(path), bytes.NewReader(body))
	if err != nil {
		c.g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "key of "+o.session())
	return req
}

func (o *commission) session() string { return fmt.Sprintf("session-%d", o.number) }

// again is how soon a good client asks again.
const again = 20 * time.Millisecond

// place asks for it until it is acknowledged, whatever becomes of the gateway
// meanwhile. It gives up when too much time has passed.
func (o *commission) place(c *customer) {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * patience); time.Now().Before(deadline); <-tick.C {
		t, status, err := c.read(o.request(c))
		switch {
		case err != nil || status == http.StatusServiceUnavailable: // it is down, or coming or going
		case status == http.StatusOK && t.ID != "":
			o.task = t.ID
			return
		default:
			c.g.t.Errorf("%s is answered %d %s", o.prompt(), status, t.text)
			return
		}
	}
	c.g.t.Errorf("%s was never acknowledged", o.prompt())
}

// read sends a request and reads the task of its answer.
func (c *customer) read(req *http.Request) (t resource, status int, err error) {
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

// look reads a task. Wait is for how many seconds the gateway may wait for a
// change.
func (c *customer) look(task string, wait int) resource {
	c.g.t.Helper()
	req, err := http.NewRequestWithContext(c.g.t.Context(), http.MethodGet, fmt.Sprintf("%s?wait=%d", c.g.url("/v1/platform/tasks/"+task), wait), nil)
	if err != nil {
		c.g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	t, status, err := c.read(req)
	if err != nil || status != http.StatusOK {
		c.g.t.Fatalf("the task %s is answered %d %s (%v)", task, status, t.text, err)
	}
	return t
}

// leaseLength is how long a task is left alone whose driver was killed: until
// then another one may be at work on it.
const leaseLength = time.Minute

// outcome waits for the end of a task. One whose submission is in doubt has none
// for now, and is returned as it is.
func (c *customer) outcome(o *commission) resource {
	c.g.t.Helper()
	wait := 0
	for deadline := time.Now().Add(2 * leaseLength); ; wait = 10 {
		t := c.look(o.task, wait)
		if t.Completed != 0 || t.Status == "pending" && o.face() == generic {
			return t
		}
		if time.Now().After(deadline) {
			c.g.t.Errorf("%s is still %s", o.prompt(), t.text)
			return t
		}
	}
}

// fetch returns a file.
func (c *customer) fetch(link string) []byte {
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

// books are what all commissions came to.
type books struct {
	charged nano
	held    nano
	ended   map[string]int // by status
}

// check holds a commission against what the studio and the receiver know of it,
// and adds it to the books.
func (b *books) check(c *customer, o *commission, u *studio, r *receiver, t resource) {
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
		wrong("the studio has %d jobs of it, asked for in %d sessions: %+v", len(jobs), len(sessions), subs)
	}
	if o.face() == generic && len(subs) > 1 {
		wrong("it was submitted %d times", len(subs))
	}
	b.ended[t.Status]++
	switch ids, told := r.of(o.task); {
	case t.Status == "pending":
		// Nobody knows whether there is a job, and nobody asks for it again.
		b.held += costs[o.model]
		if len(ids) > 0 {
			wrong("callbacks came: %q", ids)
		}
		return
	case cut && o.face() == generic:
		wrong("nobody can know that")
	case len(ids) != 1:
		wrong("its callbacks have the ids %q", ids)
	case told.Type != map[bool]string{true: "task.failed", false: "task.succeeded"}[o.fails()],
		told.Data.Session != o.session(), told.Data.Context != "of "+o.session(),
		told.Data.Status != t.Status, told.Data.Completed != t.Completed, !slices.Equal(told.Data.Result.URLs, t.Result.URLs), told.Data.Error != t.Error:
		wrong("its callback says %s", told.text)
	}
	if len(jobs) != 1 {
		wrong("the studio has no job of it")
	}
	if o.fails() {
		if t.Status != "failed" || t.Error.Reason != "CONTENT_REJECTED" {
			wrong("it should have failed")
		}
		return
	}
	b.charged += costs[o.model]
	if t.Status != "success" || len(t.Result.URLs) != 1 {
		wrong("it should be there")
	}
}

// checkMoney holds the books against the ledger.
func (b *books) checkMoney(c *customer, credit nano) {
	c.g.t.Helper()
	c.g.verify()
	c.g.verifyByCommand("--address", c.g.Admin)
	if w := c.g.wallet(c.name); w.Balance != credit-b.charged || w.Held != b.held || w.Owed != 0 || w.Reserved != 0 {
		c.g.t.Errorf("the wallet is %+v; of %v, %v were charged and %v are held", w, credit, b.charged, b.held)
	}
	lines := c.g.ledger(c.name)
	if paid := -sumOf(lines, "settle"); paid != b.charged {
		c.g.t.Errorf("%v were paid for what costs %v", paid, b.charged)
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

// awaitAll waits for the callbacks of all tasks that are over.
func (r *receiver) awaitAll(t *testing.T, tasks []string) {
	t.Helper()
	tick := time.NewTicker(again)
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
			t.Errorf("no callback came of %q", missing)
			return
		}
	}
}
