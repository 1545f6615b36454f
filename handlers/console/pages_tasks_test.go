package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// taskUser logs in a new user with money, by the form.
func taskUser(t *testing.T, g *gatetest.Gate, amount string) (b *browser, name string) {
	t.Helper()
	b = newBrowser(g)
	name = b.registers(t)
	if amount != "" {
		g.Credit(t, name, amount)
	}
	return b, name
}

// shownByAPI returns what the API shows to the user of the browser.
func shownByAPI[T any](t *testing.T, b *browser, path string) T {
	t.Helper()
	answer, e := b.ask(t, "GET", path, "")
	return data[T](t, answer, e)
}

// taskForm returns the form of a video or an image as a browser sends it.
func taskForm(action, kind, prompt string, more ...string) url.Values {
	form := url.Values{"do": {action}, "type": {kind}, "model": {kind + "-test-1"}, "prompt": {prompt}, "idempotency_key": {fmt.Sprint(time.Now().UnixNano())}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form
}

// submitsByPage submits a task by the form, and returns its id.
func (b *browser) submitsByPage(t *testing.T, kind, prompt string, more ...string) string {
	t.Helper()
	answer := b.sends(t, "/console/tasks/new?model="+kind+"-test-1", taskForm("submit_task", kind, prompt, more...))
	found := regexp.MustCompile(`^/console/tasks/(task_\w+)\?done=task_submitted$`).FindStringSubmatch(answer.Header.Get("Location"))
	if answer.Status != http.StatusSeeOther || found == nil {
		t.Fatalf("answered %d %s:\n%s", answer.Status, answer.Header.Get("Location"), answer.Body)
	}
	return found[1]
}

// untilShown waits until the API shows a task in a status.
func (b *browser) untilShown(t *testing.T, id, status string) seenTask {
	t.Helper()
	return gatetest.Eventually(t, "the task is "+status, func() (seen seenTask, ok bool) {
		seen = shownByAPI[seenTask](t, b, "/api/task/self/"+id)
		return seen, seen.Status == status
	})
}

// hides checks that a page contains none of the texts.
func hides(t *testing.T, answer gatetest.Answer, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(answer.Body, text) {
			t.Errorf("the page contains %q:\n%s", text, answer.Body)
		}
	}
}

func TestATaskIsComposedByItsPage(t *testing.T) {
	t.Parallel()
	g := startGenerating(t, "")
	b, name := taskUser(t, g, "2.00")
	shows(t, b.page(t, "/console/tasks"), 200, `href="/console/tasks/new"`, "no tasks yet")
	shows(t, b.page(t, "/console/tasks/new"), 200, `&amp;model=video-test-1"`, `&amp;model=image-test-1"`,
		"0.10 USD per second", "0.05 USD per image", "<code>video-test-*</code>")
	shows(t, b.page(t, "/console/tasks/new?model=video-none-1"), 200, "<code>video-none-1</code>", `role="alert"`)

	// The form has the fields of the family.
	film := b.page(t, "/console/tasks/new?model=video-test-1")
	shows(t, film, 200, `name="output.duration"`, `<option value="5" selected>5</option><option value="10">`, `name="scene_type"`, `<option value="lip_sync">`,
		`name="inputs[4].url"`, `<option value="feature">`, `name="subject_inputs[0].id"`, "Your balance is 2.00 USD")
	hides(t, film, `name="output.count"`, `name="output.audio_generation"`, `name="seed"`, `name="inputs[0].text"`, `name="inputs[0].voice_id"`)
	shows(t, b.page(t, "/console/tasks/new?model=image-test-1"), 200, `name="output.count"`, `<option value="9">`, `name="seed"`, `name="inputs[0].text"`)

	// A dry run keeps what was typed, and holds nothing.
	key := regexp.MustCompile(`name="idempotency_key" value="(\w+)"`).FindStringSubmatch(film.Body)[1]
	form := taskForm("price_task", "video", "  stays <i>here</i>", "output.duration", "10", "idempotency_key", key)
	shows(t, b.sends(t, "/console/tasks/new?model=video-test-1", form), 200, "at most 1.00 USD", "1 video × 10 s × 0.10 per second",
		"  stays &lt;i&gt;here&lt;/i&gt;</textarea>", `<option value="10" selected>`, `value="`+key+`"`)
	if list := shownByAPI[page[seenTask]](t, b, "/api/task/self/"); list.Total != 0 {
		t.Errorf("the dry run made a task: %+v", list)
	}
	if w := g.WalletAtRest(t, name); w.Balance.String() != "2.00" || w.Held != 0 {
		t.Errorf("the wallet is %+v", w)
	}

	// A refused form keeps what was typed, and marks the field.
	shows(t, b.sends(t, "/console/tasks/new?model=video-test-1", taskForm("submit_task", "video", "a cat", "output.duration", "7")), 400,
		`name="output.duration" aria-invalid="true"`, "a cat</textarea>", "<code>INVALID_PARAMETER</code>")
	shows(t, b.sends(t, "/console/tasks/new?model=video-test-1", taskForm("submit_task", "video", "a cat", "inputs[2].url", "http://127.0.0.1/x.png")), 400, "inputs[0].url")

	// The same form twice is one task.
	form.Set("do", "submit_task")
	first := b.sends(t, "/console/tasks/new?model=video-test-1", form)
	second := b.sends(t, "/console/tasks/new?model=video-test-1", form)
	leads(t, second, strings.Replace(first.Header.Get("Location"), "task_submitted", "replayed", 1))
	list := shownByAPI[page[seenTask]](t, b, "/api/task/self/")
	if list.Total != 1 || list.Items[0].Request["prompt"] != "stays <i>here</i>" || list.Items[0].Held != "1.00" {
		t.Fatalf("the tasks are %+v", list)
	}
	b.untilShown(t, list.Items[0].ID, "in_progress")
	shows(t, b.page(t, first.Header.Get("Location")), 200, "The task is submitted.", "stays &lt;i&gt;here&lt;/i&gt;", "1.00 USD held", "1 video × 10 s × 0.10 per second",
		`data-task="`+list.Items[0].ID+`"`, `<progress max="100" value="40"`, `<noscript><meta http-equiv="refresh"`)
}

func TestATaskIsRunAgainAndCancelledByItsPage(t *testing.T) {
	t.Parallel()
	g := startGenerating(t, "")
	b, name := taskUser(t, g, "5.00")
	id := b.submitsByPage(t, "video", "it's \"stays\" & <more>", "output.duration", "10", "output.resolution", "1080P", "negative_prompt", "rain",
		"inputs[1].url", "https://pictures.example/boat.png", "inputs[1].usage", "firstFrame", "subject_inputs[0].url", "https://pictures.example/cat.png", "subject_inputs[0].id", "cat")
	b.untilShown(t, id, "in_progress")
	path := "/console/tasks/" + id
	page := b.page(t, path)
	shows(t, page, 200, `href="`+path+`/again?once=`, `&amp;model=video-test-1"`, "<code>inputs[0].url</code>", "https://pictures.example/boat.png",
		"it&#39;\\&#39;&#39;s", g.URL("/v1/platform/video"), "cancel_task")
	again := b.page(t, path+"/again?model=video-test-1")
	shows(t, again, 200, "it&#39;s &#34;stays&#34; &amp; &lt;more&gt;</textarea>", `<option value="10" selected>`, `<option value="1080P" selected>`, "rain</textarea>",
		`name="inputs[0].url" type="url" value="https://pictures.example/boat.png"`, `<option value="firstFrame" selected>`, `value="cat"`)
	leads(t, b.sends(t, path, hidden(t, page.Body, "cancel_task")), path+"?done=task_cancelled")
	cancelled := b.page(t, path+"?done=task_cancelled")
	shows(t, cancelled, 200, "The task is cancelled.", "TASK_CANCELLED", "0.00 USD")
	hides(t, cancelled, "cancel_task", "<noscript>", "data-task")
	shows(t, b.sends(t, path, hidden(t, page.Body, "cancel_task")), 303)

	stubborn := b.submitsByPage(t, "video", "stubborn")
	b.untilShown(t, stubborn, "in_progress")
	shows(t, b.sends(t, "/console/tasks/"+stubborn, url.Values{"do": {"cancel_task"}}), 409, "TASK_NOT_CANCELLABLE", `role="alert"`)
	if w := g.Wallet(t, name); w.Balance.String() != "5.00" || w.Held.String() != "0.50" {
		t.Errorf("the wallet is %+v", w)
	}
}

func TestTheGalleryShowsTheTasksOfTheUser(t *testing.T) {
	t.Parallel()
	g := startGenerating(t, "")
	b, _ := taskUser(t, g, "50.00")
	other, _ := taskUser(t, g, "5.00")
	theirs := other.submitsByPage(t, "video", "stays")
	const hostile = "<script>alert(1)</script>\u202e\"'><img src=x onerror=alert(2)>🌅"
	done, wrong := b.submitsByPage(t, "video", "done"), b.submitsByPage(t, "video", "wrong")
	b.untilShown(t, done, "success")
	b.untilShown(t, wrong, "failed")
	hides(t, b.page(t, "/console/tasks"), "<noscript>", "data-refresh", "data-task")
	short := b.submitsByPage(t, "image", hostile, "output.count", "3")
	long := b.submitsByPage(t, "image", strings.Repeat(hostile, 160))
	b.untilShown(t, long, "in_progress")
	b.untilShown(t, short, "in_progress")

	for _, language := range []string{"en", "zh"} {
		b.jar["modelgate_language"] = language
		for _, view := range []string{"", "list"} {
			gallery := b.page(t, "/console/tasks?view="+view)
			shows(t, gallery, 200, `href="/console/tasks/`+done+`"`, "0.50 USD", `data-task="`+long+`"`, "&lt;script&gt;alert(1)&lt;/script&gt;", "data-refresh")
			hides(t, gallery, "<script>alert", "<img src=x", theirs)
			if n := strings.Count(gallery.Body, "data-task="); n != 2 {
				t.Errorf("%d cards are unfinished", n)
			}
		}
		for _, id := range []string{short, long, done, wrong} {
			one := b.page(t, "/console/tasks/"+id)
			shows(t, one, 200, id)
			hides(t, one, "<script>alert", "<img src=x", "secret-works", "of-the-service", "0.0123")
			again := b.page(t, "/console/tasks/"+id+"/again?model=image-test-1")
			shows(t, again, 200)
			hides(t, again, "<script>alert", "<img src=x")
		}
		shows(t, b.page(t, "/console/tasks/new"), 200)
	}
	b.jar["modelgate_language"] = "en"

	// A result that the service keeps is a link, not a picture; a failure has its reason.
	gallery := b.page(t, "/console/tasks")
	shows(t, gallery, 200, `href="https://files.example/a.mp4"`, "The model ended without a result")
	hides(t, gallery, "<video", "<img")
	shows(t, b.page(t, "/console/tasks/"+wrong), 200, "it went wrong", "0.00 USD", "not charged")

	// Filters and pages.
	failed := b.page(t, "/console/tasks?status=failed")
	shows(t, failed, 200, wrong, `<option value="failed" selected>`)
	hides(t, failed, done, short)
	shows(t, b.page(t, "/console/tasks?status=queued"), 200, "No task matches.")
	shows(t, b.page(t, "/console/tasks?status=none"), 400, `role="alert"`, `name="status"`)
	shows(t, b.page(t, "/console/tasks?key_id=key_0"), 200, "No task matches.")
	for range 20 {
		b.submitsByPage(t, "image", "stays")
	}
	shows(t, b.page(t, "/console/tasks"), 200, `rel="next" href="/console/tasks?p=2"`)
	shows(t, b.page(t, "/console/tasks?p=2"), 200, done, wrong)

	// Tasks of others are not there.
	for _, id := range []string{theirs, "task_none", "x"} {
		for _, path := range []string{"/console/tasks/" + id, "/console/tasks/" + id + "/again?model=video-test-1"} {
			shows(t, b.page(t, path), 404, "TASK_NOT_FOUND")
		}
		shows(t, b.sends(t, "/console/tasks/"+id, url.Values{"do": {"cancel_task"}}), 404, "TASK_NOT_FOUND")
	}
	if seen := shownByAPI[seenTask](t, other, "/api/task/self/"+theirs); seen.CompletedAt != 0 {
		t.Errorf("the task of another user has ended: %+v", seen)
	}
}

// drawing is the configuration of a service that draws pictures, which the gateway keeps.
const drawing = app + `
	family A test-*
	backend demo {
		models image-test-*
		adapter demo {
			takes 10ms
		}
	}
	price image-* {
		image 0.05
	}
`

func TestAResultIsShownUntilItExpires(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: drawing, Site: doors})
	b, name := taskUser(t, g, "5.00")
	id := b.submitsByPage(t, "image", "a lighthouse", "output.count", "2")
	g.Until(t, id, "success")
	type keptTask struct {
		Result struct{ URLs []string }
		In     int64 `json:"expires_in"`
	}
	seen := shownByAPI[keptTask](t, b, "/api/task/self/"+id)
	if len(seen.Result.URLs) != 2 || seen.In < 7*86400-60 || seen.In > 7*86400 {
		t.Fatalf("the result is %+v", seen)
	}
	card := b.page(t, "/console/tasks")
	shows(t, card, 200, `<img src="`+seen.Result.URLs[0]+`"`, "7 days left", "2 results", "0.10 USD")
	hides(t, card, seen.Result.URLs[1])
	shows(t, b.page(t, "/console/tasks/"+id), 200, `<img src="`+seen.Result.URLs[0]+`"`, `<img src="`+seen.Result.URLs[1]+`"`, `href="`+seen.Result.URLs[1]+`" download`)
	if policy := card.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "img-src 'self'; media-src 'self';") {
		t.Errorf("the policy is %s", policy)
	}

	g.Wait(6*24*time.Hour + time.Hour)
	b = entersBy(t, g, name)
	shows(t, b.page(t, "/console/tasks"), 200, "1 day left")
	g.Wait(24 * time.Hour)
	b = entersBy(t, g, name)
	for _, path := range []string{"/console/tasks", "/console/tasks/" + id} {
		late := b.page(t, path)
		shows(t, late, 200, "Expired: results are kept for 7 days.", "a lighthouse", "0.10 USD")
		hides(t, late, "<img", "download")
	}

	// Results may have an origin of their own, which is the only other one that pages load from.
	files := gatetest.Config{App: drawing + fmt.Sprintf("media {\npath %q\nbase_url https://files.example.com\n}\n", t.TempDir()), Site: doors}
	if err := g.Reload(files); err != nil {
		t.Fatal(err)
	}
	if policy := b.page(t, "/console/tasks").Header.Get("Content-Security-Policy"); !strings.Contains(policy, "img-src 'self' https://files.example.com; media-src 'self' https://files.example.com; connect-src 'self';") {
		t.Errorf("the policy is %s", policy)
	}
}

func TestTheQuickStartHasTheModelsOfTheSite(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: drawing + "price chat-1 {\nrequest 0.01\n}\n", Site: doors})
	b, _ := taskUser(t, g, "")
	for _, language := range []string{"zh", "en"} {
		b.jar["modelgate_language"] = language
		shows(t, b.page(t, "/console/start"), 200, g.URL("/v1/messages"), `base_url="`+g.URL("/v1"), `"model": "chat-1"`, `"model": "image-test-1"`)
	}
}

func TestTheReferenceHasEveryOperation(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: app, Site: site + "\nmodelgate_docs\n"})
	b, _ := taskUser(t, g, "")
	overview := b.page(t, "/console/reference")
	shows(t, overview, 200)
	whole := ""
	for _, found := range regexp.MustCompile(`<h2><a href="(/console/reference/[^"]+)">`).FindAllStringSubmatch(overview.Body, -1) {
		chapter := b.page(t, found[1])
		shows(t, chapter, 200)
		whole += chapter.Body
	}
	document := g.Do(t, "GET", "/openapi.yaml", "", "").Body
	operations := regexp.MustCompile(`operationId: (\w+)`).FindAllStringSubmatch(document, -1)
	for _, found := range operations {
		if strings.Count(whole, `id="`+found[1]+`"`) != 1 || !strings.Contains(overview.Body, "#"+found[1]+`"`) {
			t.Errorf("the operation %s is missing", found[1])
		}
	}
	if len(operations) < 80 {
		t.Errorf("there are %d operations", len(operations))
	}
	for _, text := range []string{"<code>output.duration</code>", "<code>data.items[].task_id</code>", "queued | pending | in_progress", "&#34;task_id&#34;: &#34;task_01&#34;"} {
		if !strings.Contains(whole, text) {
			t.Errorf("the reference lacks %s", text)
		}
	}
}
