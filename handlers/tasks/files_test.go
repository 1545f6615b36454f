package tasks_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// film begins with the bytes of an MP4 file.
var film = "\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + strings.Repeat("frame ", 1000)

// startWithMedia starts a fixture that copies results, ends a task with this media name, and
// returns the path of its file.
func startWithMedia(t *testing.T, mediaName string) (w *fixture, path string) {
	t.Helper()
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(film))
	}))
	t.Cleanup(source.Close)
	w = start(t, "media {\n path "+t.TempDir()+"/media\n allow "+strings.TrimPrefix(source.URL, "http://")+"\n }")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, object{"output.media_name": mediaName})).Task_ID
	end := w.finish(t, key, task, succeeded(source.URL+"/req.html"))
	path, found := strings.CutPrefix(end.Result.URL, "https://gate.example")
	if !found || !strings.HasPrefix(path, "/v1/files/") {
		t.Fatalf("the file is at %s", end.Result.URL)
	}
	return w, path
}

// file requests a file by its link, without a credential.
func (w *fixture) file(t testing.TB, path string, headers ...string) gatetest.Answer {
	t.Helper()
	return w.Do(t, http.MethodGet, path, strings.Join(headers, "\n"), "")
}

func TestAFileIsServedWithoutACredential(t *testing.T) {
	w, path := startWithMedia(t, "Ein Böot 100%.mp4")
	if !strings.HasSuffix(path, "/Ein%20B%C3%B6ot%20100%25.mp4") {
		t.Errorf("the link is %s", path)
	}
	name := strings.Split(path, "/")[3]
	got := w.file(t, path)
	if got.Status != 200 || got.Body != film {
		t.Fatalf("answered %d with %d bytes: %.200s", got.Status, len(got.Body), got.Body)
	}
	for header, want := range map[string]string{
		"Content-Type": "video/mp4", "Content-Length": fmt.Sprint(len(film)), "Accept-Ranges": "bytes", "Etag": `"` + name + `"`,
		"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox",
		"Content-Disposition": "inline; filename*=utf-8''Ein%20B%C3%B6ot%20100%25.mp4",
	} {
		if got.Header.Get(header) != want {
			t.Errorf("%s: %q, want %q", header, got.Header.Get(header), want)
		}
	}
	var age int
	if _, err := fmt.Sscanf(got.Header.Get("Cache-Control"), "private, max-age=%d, immutable", &age); err != nil || age < 604_700 || age > 604_800 {
		t.Errorf("Cache-Control: %q", got.Header.Get("Cache-Control"))
	}
	if got.RequestID() == "" || got.Header.Get("Set-Cookie") != "" || got.Header.Get("Last-Modified") == "" {
		t.Errorf("headers %v", got.Header)
	}

	head := w.Do(t, http.MethodHead, path, "", "")
	if head.Status != 200 || head.Body != "" || head.Header.Get("Content-Length") != fmt.Sprint(len(film)) {
		t.Errorf("HEAD is answered %d %v", head.Status, head.Header)
	}
	for headers, want := range map[string]struct {
		status int
		body   string
	}{
		"Range: bytes=4-11": {206, film[4:12]},
		"Range: bytes=-5":   {206, film[len(film)-5:]},
		"Range: bytes=4-11\nIf-Range: \"" + name + `"`:     {206, film[4:12]},
		"Range: bytes=4-11\nIf-Range: \"another\"":         {200, film},
		"If-None-Match: \"" + name + `"`:                   {304, ""},
		"If-Modified-Since: Mon, 01 Jan 2001 00:00:00 GMT": {200, film},
		"Range: items=1": {200, film}, // an unknown unit
		"Range: items=4-11\nIf-None-Match: \"" + name + `"`: {304, ""},
		"Range: Bytes=4-11":    {416, ""},
		"Range: bytes=999999-": {416, ""},
		"Range: bytes=x":       {416, ""},
		"Range: 4-11":          {200, film},
	} {
		got := w.file(t, path, headers)
		if want.status == http.StatusRequestedRangeNotSatisfiable {
			refusal{416, fault.RangeNotSatisfiable, "", fmt.Sprintf("%d bytes", len(film))}.check(t, path, got)
			if size := fmt.Sprintf("bytes */%d", len(film)); got.Header.Get("Content-Range") != size || got.Header.Get("Etag") != "" || got.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: headers %v", headers, got.Header)
			}
			continue
		}
		if got.Status != want.status || got.Body != want.body {
			t.Errorf("%s: answered %d with %d bytes %.60q", headers, got.Status, len(got.Body), got.Body)
		}
	}
}

func TestAFileIsServedInAtMostSixteenRanges(t *testing.T) {
	w, path := startWithMedia(t, "a.mp4")
	for n, want := range map[int]int{16: 206, 17: 416, 1000: 416} {
		ranges := strings.TrimSuffix(strings.Repeat("0-0,", n), ",")
		got := w.file(t, path, "Range: bytes="+ranges)
		if got.Status != want || want == 416 && !strings.Contains(got.Body, "allowed: 16") {
			t.Errorf("%d ranges: answered %d, %.300s", n, got.Status, got.Body)
		}
	}
}

func TestOtherSpellingsOfAFilePathAreNotFound(t *testing.T) {
	w, path := startWithMedia(t, "Boat.mp4")
	name := strings.Split(path, "/")[3]
	missing := refusal{404, fault.NotFound, "", ""}
	for _, other := range []string{
		"/v1/files/" + name + "/boat.mp4", "/v1/files/" + name + "/Boat.mp4x", "/v1/files/" + name + "/Boat", "/v1/files/" + name + "/..%2FBoat.mp4",
		"/v1/files/" + name + "/", "/v1/files/" + name, "/v1/files/" + name + "/Boat.mp4/", "/v1/files/" + name + "/%", "/v1/files/" + name + "/Boat.mp4%00",
		"/v1/files/" + strings.ToUpper(name) + "/Boat.mp4", "/v1/files/" + name[:25] + "/Boat.mp4", "/v1/files/aaaaaaaaaaaaaaaaaaaaaaaaaa/Boat.mp4",
		"/v1/files/../files/" + name + "/Boat.mp4", "/v1/Files/" + name + "/Boat.mp4", "/v1/files//" + name + "/Boat.mp4", "/v1/files/" + name + "//Boat.mp4",
		"/v1/files/..%2F..%2Fetc/passwd", "/v1/files/.../Boat.mp4", "/v1/files/" + name + `\Boat.mp4`,
	} {
		t.Run(other, func(t *testing.T) {
			conn := w.Dial(t)
			conn.Send(t, "GET "+other+" HTTP/1.1\nHost: gate\n\n")
			got := conn.Receive(t, http.MethodGet)
			if strings.HasSuffix(other, "/%") && got.Status == 400 {
				return // net/http refuses this path
			}
			missing.check(t, "/v1/files", got)
		})
	}
	// The path may be percent-encoded.
	if got := w.file(t, "/v1/files/"+name+"/%42oat.mp4"); got.Status != 200 {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
}

func TestAFileIsGoneAfterSevenDays(t *testing.T) {
	w, path := startWithMedia(t, "")
	if !strings.HasSuffix(path, "/video-1.mp4") {
		t.Errorf("the link is %s", path)
	}
	w.Wait(7*24*time.Hour - time.Minute)
	got := w.file(t, path)
	var age int
	if _, err := fmt.Sscanf(got.Header.Get("Cache-Control"), "private, max-age=%d, immutable", &age); err != nil || got.Status != 200 || age > 60 {
		t.Errorf("answered %d %v", got.Status, got.Header)
	}
	w.Wait(time.Minute)
	got = w.file(t, path, "Range: bytes=0-1")
	refusal{410, fault.Gone, "", "kept for 7 days"}.check(t, "/v1/files", got)
	if got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("Etag") != "" {
		t.Errorf("headers %v", got.Header)
	}
}

func TestWithoutMediaResultsKeepTheBackendURLs(t *testing.T) {
	w := start(t, "media off")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	if got := w.finish(t, key, task, succeeded("https://cdn.example/req.mp4")); got.Result.URL != "https://cdn.example/req.mp4" {
		t.Errorf("the link is %+v", got.Result)
	}
	refusal{404, fault.NotFound, "", ""}.check(t, "/v1/files", w.file(t, "/v1/files/aaaaaaaaaaaaaaaaaaaaaaaaaa/req.mp4"))
}

func TestOnlyAnAuthenticNoticeTriggersAPoll(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	const path = "/v1/notices/works"
	notice := fmt.Sprintf(`{"token":%q}`, backends.Token(task))
	signed := "X-Mock-Secret: " + noticeSecret
	for name, c := range map[string]struct {
		path, headers, body string
		want                refusal
	}{
		"unsigned":        {path, "", notice, refusal{403, fault.Forbidden, "", "not a notice of the service"}},
		"wrong signature": {path, "X-Mock-Secret: x", notice, refusal{403, fault.Forbidden, "", "not a notice of the service"}},
		"invalid JSON":    {path, signed, `{`, refusal{403, fault.Forbidden, "", "not a notice of the service"}},
		"unknown backend": {"/v1/notices/unknown", signed, notice, refusal{404, fault.NotFound, "", "no backend of this name"}},
		"too large":       {path, signed, strings.Repeat("x", 1<<20+1), refusal{413, fault.PayloadTooLarge, "", "1 MiB"}},
		"encoded":         {path, signed + "\nContent-Encoding: gzip", notice, refusal{415, fault.UnsupportedMediaType, "", ""}},
		"query":           {path + "?%zz", signed, notice, refusal{400, fault.InvalidParameter, "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.check(t, c.path, w.Do(t, http.MethodPost, c.path, c.headers, c.body))
		})
	}
	// The answer to a notice of an unknown job does not reveal that the job is unknown.
	if got := w.Do(t, http.MethodPost, path, signed, `{"token":"unknown"}`); got.Status != 200 || got.Body != `{}` {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	if w.Logged(noticeSecret) {
		t.Error("the secret is in the log")
	}
	// The content of a notice is not trusted: the gateway polls the job, although the
	// service reported a Retry-After of an hour.
	w.service.setStatus(task, backends.Status{State: backends.Queued, RetryAfter: time.Hour})
	for deadline := time.Now().Add(gatetest.Timeout); w.service.polled(task) == 0; {
		w.notify(t, task)
		if time.Now().After(deadline) {
			t.Fatal("the job was not polled")
		}
	}
	if got := decoded[resource](t, w.get(t, key, tasksPath+"/"+task)); got.Status != "queued" {
		t.Errorf("answered %+v", got)
	}
	w.finish(t, key, task, succeeded("https://cdn.example/req.mp4"))
}

func TestConcurrentNoticesOfAnAddressAreLimited(t *testing.T) {
	w := start(t, "")
	const limit, more = 32, 8
	conns := make([]*gatetest.Wire, limit+more)
	statuses := make(chan int, len(conns))
	for i := range conns {
		conns[i] = w.Dial(t)
		conns[i].Send(t, "POST /v1/notices/works HTTP/1.1\nHost: gate\nX-Mock-Secret: "+noticeSecret+"\nContent-Length: 16\n\n{")
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(conns[i].Conn), nil)
			if err != nil {
				statuses <- 0
				return
			}
			resp.Body.Close()
			statuses <- resp.StatusCode
		}()
	}
	for range more { // the other notices wait for their bodies
		if status := <-statuses; status != http.StatusTooManyRequests {
			t.Fatalf("answered %d", status)
		}
	}
	for _, conn := range conns {
		_, _ = conn.Write([]byte(`"token":"none"}`)) // the connections of refused notices are closed
	}
	for range limit {
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("a slow notice is answered %d", status)
		}
	}
	for range limit + more { // consecutive notices are not limited
		w.notify(t, someTask)
	}
}
