package call_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// headOf returns the request line and headers of a POST with these headers about its body.
func headOf(path, key, announced string) string {
	return "POST " + path + " HTTP/1.1\nHost: gate\n" + headersFor(path, key) + announced + "\n\n"
}

func tooLarge(limit string) refusal {
	return refusal{413, "request_too_large", fault.PayloadTooLarge, "the body is larger than " + limit, ""}
}

func TestHeadersAreCheckedBeforeTheBodyIsRead(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	good := g.NewKey(t, nil).Secret
	for name, c := range map[string]struct {
		head string
		want refusal
	}{
		"no credential, small body announced":  {headOf(messages, "", "Content-Length: 100"), unauthorized},
		"no credential, large body announced":  {headOf(messages, "", "Content-Length: 20000000"), unauthorized},
		"no credential, chunked":               {headOf(messages, "", "Transfer-Encoding: chunked"), unauthorized},
		"no credential, 100-continue expected": {headOf(messages, "", "Content-Length: 100\nExpect: 100-continue"), unauthorized},
		"bad version":                          {strings.Replace(headOf(messages, good, "Content-Length: 100"), "2023-06-01", "soon", 1), refusal{400, "invalid_request_error", fault.InvalidParameter, "the header anthropic-version must be one date such as 2023-06-01", ""}},
		"encoded":                              {headOf(messages, good, "Content-Length: 100\nContent-Encoding: gzip"), refusal{415, "invalid_request_error", fault.UnsupportedMediaType, `Content-Encoding "gzip": send the body without an encoding`, ""}},
		"33 MiB announced":                     {headOf(messages, good, "Content-Length: "+itoa(33<<20)), tooLarge("32 MiB")},
		"9 MiB announced on the other dialect": {headOf(chat, good, "Content-Length: "+itoa(9<<20)), tooLarge("8 MiB")},
		"33 MiB announced, 100-continue":       {headOf(messages, good, "Content-Length: "+itoa(33<<20)+"\nExpect: 100-continue"), tooLarge("32 MiB")},
		"wrong method":                         {strings.Replace(headOf(messages, good, "Content-Length: 100"), "POST", "PUT", 1), refusal{405, "invalid_request_error", fault.MethodNotAllowed, "/v1/messages takes POST", ""}},
		"misspelt path":                        {headOf("/v1/messages/", good, "Content-Length: 100"), notFound},
		"unknown path":                         {headOf("/v1/messages/unknown", good, "Content-Length: 100"), unserved},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := g.Dial(t)
			conn.Send(t, c.head) // the body never follows
			path := messages
			if strings.Contains(c.head, chat) {
				path = chat
			}
			c.want.check(t, path, conn.Receive(t, http.MethodPost))
		})
	}
	t.Cleanup(func() {
		if n := g.Backend.Total(); n != 0 {
			t.Errorf("%d calls reached the backend", n)
		}
	})
}

func TestBodySizeLimit(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for _, c := range []struct {
		path  string
		limit int
		name  string // of the limit
	}{{messages, 32 << 20, "32 MiB"}, {chat, 8 << 20, "8 MiB"}} {
		for _, chunked := range []bool{false, true} {
			name := c.path
			if chunked {
				name += " chunked"
			}
			t.Run(name, func(t *testing.T) {
				for _, size := range []int{c.limit, c.limit + 1} {
					model := name + itoa(size)
					body := bodyFor(c.path, model, `,"x":"`)
					body = body[:len(body)-1]
					body += strings.Repeat("x", size-len(body)-2) + `"}`
					conn := g.Dial(t)
					if chunked {
						conn.Send(t, headOf(c.path, key, "Transfer-Encoding: chunked\nConnection: close"))
						go func() { // the gateway does not read the rest of a body that is too large
							_, _ = conn.Write([]byte(strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n0\r\n\r\n"))
						}()
					} else {
						conn.Send(t, headOf(c.path, key, "Content-Length: "+itoa(size)+"\nConnection: close"))
						go func() { _, _ = conn.Write([]byte(body)) }()
					}
					got := conn.Receive(t, http.MethodPost)
					if size > c.limit {
						tooLarge(c.name).check(t, c.path, got)
						if len(g.Backend.Seen(model)) != 0 {
							t.Error("the body reached the backend")
						}
						continue
					}
					if seen := g.Backend.Seen(model); got.Status != http.StatusOK || len(seen) != 1 || string(seen[0].Body) != body {
						t.Errorf("a body of the maximum size was answered %d %.200s", got.Status, got.Body)
					}
				}
			})
		}
	}
}

func TestAnEncodedBodyIs415(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for _, path := range []string{messages, chat} {
		for _, coding := range []string{"gzip", "br", "deflate", "identity, gzip"} {
			got := g.Do(t, http.MethodPost, path, headersFor(path, key)+"Content-Encoding: "+coding, gzipped(t, bodyFor(path, "encoded", "")))
			refusal{415, "invalid_request_error", fault.UnsupportedMediaType, `Content-Encoding "` + coding + `": send the body without an encoding`, ""}.check(t, path, got)
		}
		got := g.Do(t, http.MethodPost, path, headersFor(path, key)+"Content-Encoding: identity", bodyFor(path, "plain", ""))
		if got.Status != http.StatusOK {
			t.Errorf("Content-Encoding identity: answered %d", got.Status)
		}
	}
	if n := len(g.Backend.Seen("encoded")); n != 0 {
		t.Errorf("%d encoded bodies reached the backend", n)
	}
}

func TestASlowBodyIs408(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n body_read 100ms\n}", Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	late := refusal{408, "invalid_request_error", fault.RequestTimeout, "the body did not arrive in time", ""}
	for _, path := range []string{messages, chat} {
		for _, announced := range []string{"Content-Length: 100", "Content-Length: 1000000", "Transfer-Encoding: chunked"} {
			t.Run(path+" "+announced, func(t *testing.T) {
				t.Parallel()
				conn := g.Dial(t)
				conn.Send(t, headOf(path, key, announced))
				if strings.HasPrefix(announced, "T") {
					conn.Send(t, "a\n")
				}
				conn.Send(t, `{"model":`) // the rest never follows
				late.check(t, path, conn.Receive(t, http.MethodPost))
			})
		}
	}
}

func TestAnIncompleteBodyIsNotForwarded(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	conn := g.Dial(t)
	conn.Send(t, headOf(messages, key, "Content-Length: 100"))
	conn.Send(t, `{"model":"cut"`)
	conn.Close()
	line := g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("msg") == "call" && l.Text("code") == "INVALID_JSON" })
	if line.Text("ended") != "refused" || g.Backend.Total() != 0 {
		t.Errorf("logged %v", line)
	}
}

// uploading sends the first bytes of a body of 30 MiB, and waits until the gateway has
// reserved the memory for it.
func uploading(t *testing.T, g *gatetest.Gate, key string, sent int) *gatetest.Wire {
	t.Helper()
	runtime := gatetest.Runtime(t)
	before := runtime.Bodies.Users.Used()
	conn := g.Dial(t)
	conn.Send(t, headOf(messages, key, "Content-Length: "+itoa(30<<20)))
	conn.Send(t, strings.Repeat(" ", sent))
	gatetest.Eventually(t, "the memory is reserved", func() (used int64, ok bool) {
		used = runtime.Bodies.Users.Used() - before
		return used, used >= int64(sent)
	})
	return conn
}

var (
	shareIsFull = refusal{429, "rate_limit_error", fault.RateLimited, "your request bodies take all the memory that one caller may have; try again", ""}
	budgetFull  = refusal{503, "overloaded_error", fault.Overloaded, "too many request bodies are being read; try again", ""}
	wasSlow     = refusal{503, "overloaded_error", fault.Overloaded, "the body arrived slowly, and its memory was needed for others; try again", ""}
)

func TestEachUserHasAShareOfTheBodyMemory(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n body_memory 64MiB\n}", Site: gatetest.Proxied})
	a := g.NewKey(t, nil)
	var second gatetest.Key // of the same user
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": a.UserID}, &second)
	other := g.NewKey(t, nil).Secret

	// A body that is only announced reserves little memory.
	for range 20 {
		g.Dial(t).Send(t, headOf(messages, a.Secret, "Content-Length: "+itoa(30<<20)))
	}
	// A running call has reserved 20 MiB of the 32 MiB.
	seen, end := make(chan struct{}), make(chan struct{})
	g.Backend.On("large", func(w http.ResponseWriter, r *http.Request) {
		close(seen)
		<-end
		gatetest.JSON(200, `{}`)(w, r)
	})
	body := bodyFor(messages, "large", `,"x":"`+strings.Repeat("x", 20<<20)+`"`)
	first := g.Dial(t)
	first.Send(t, headOf(messages, a.Secret, "Content-Length: "+itoa(len(body))))
	first.Send(t, body)
	<-seen

	for _, key := range []string{a.Secret, second.Secret} {
		conn := g.Dial(t)
		conn.Send(t, headOf(messages, key, "Content-Length: "+itoa(20<<20)))
		go func() { _, _ = conn.Write([]byte(strings.Repeat(" ", 20<<20))) }()
		got := conn.Receive(t, http.MethodPost)
		shareIsFull.check(t, messages, got)
		if got.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After: %q", got.Header.Get("Retry-After"))
		}
	}
	whole := func(key string) {
		t.Helper()
		conn := g.Dial(t)
		conn.Send(t, headOf(messages, key, "Content-Length: "+itoa(20<<20)))
		conn.Send(t, strings.Repeat(" ", 20<<20))
		if got := conn.Receive(t, http.MethodPost); got.Status != http.StatusBadRequest {
			t.Errorf("answered %d %s", got.Status, got.Body)
		}
	}
	whole(other)
	close(end) // its memory is released
	if got := first.Receive(t, http.MethodPost); got.Status != http.StatusOK {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	gatetest.Eventually(t, "the memory is released", func() (used int64, ok bool) {
		used = gatetest.Runtime(t).Bodies.Users.Used()
		return used, used < 1<<20
	})
	whole(second.Secret)
}

func TestASlowBodyYieldsItsMemoryToAFasterOne(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n body_memory 64MiB\n}", Site: gatetest.Proxied})
	var slow []*gatetest.Wire
	for range 2 { // together they reserve all memory except 4 MiB; the first is slower
		slow = append(slow, uploading(t, g, g.NewKey(t, nil).Secret, 20<<20))
		g.Wait(time.Minute)
	}
	key := g.NewKey(t, nil).Secret
	third := g.Dial(t)
	third.Send(t, headOf(messages, key, "Content-Length: "+itoa(30<<20)))
	third.Send(t, strings.Repeat(" ", 10<<20))
	wasSlow.check(t, messages, slow[0].Receive(t, http.MethodPost))
	third.Send(t, strings.Repeat(" ", 20<<20))
	if got := third.Receive(t, http.MethodPost); got.Status != http.StatusBadRequest {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	slow[1].Send(t, strings.Repeat(" ", 10<<20)) // the faster one
	if got := slow[1].Receive(t, http.MethodPost); got.Status != http.StatusBadRequest {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
}

func TestBodiesOfRunningCallsKeepTheirMemory(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n body_memory 64MiB\n}", Site: gatetest.Proxied})
	end := make(chan struct{})
	g.Backend.On("large", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
		gatetest.JSON(200, `{}`)(w, r)
	})
	body := bodyFor(messages, "large", `,"x":"`+strings.Repeat("x", 30<<20)+`"`)
	var running []*gatetest.Wire
	for range 2 {
		conn := g.Dial(t)
		conn.Send(t, headOf(messages, g.NewKey(t, nil).Secret, "Content-Length: "+itoa(len(body))))
		conn.Send(t, body)
		running = append(running, conn)
	}
	gatetest.Eventually(t, "both calls are at the backend", func() (n int, ok bool) {
		n = len(g.Backend.Seen("large"))
		return n, n == 2
	})
	g.Wait(time.Hour)
	conn := g.Dial(t)
	conn.Send(t, headOf(messages, g.NewKey(t, nil).Secret, "Content-Length: "+itoa(30<<20)))
	go func() { _, _ = conn.Write([]byte(strings.Repeat(" ", 30<<20))) }()
	budgetFull.check(t, messages, conn.Receive(t, http.MethodPost))
	close(end)
	for _, conn := range running {
		if got := conn.Receive(t, http.MethodPost); got.Status != http.StatusOK {
			t.Errorf("answered %d %s", got.Status, got.Body)
		}
	}
}
