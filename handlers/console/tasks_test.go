package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestATaskIsComposedSeenAndPaidFor(t *testing.T) {
	g := startGenerating(t, "")
	a := newAccount(t, g)
	g.Credit(t, a.name, "2.00")
	made := a.composes(t, film("done", `"session_id":"s-1","session_context":"c","output":{"duration":10}`))
	if !strings.HasPrefix(made.ID, "task_") || made.Object != "video_task" || made.Model != "video-test-1" || !strings.HasPrefix(made.KeyID, "key_") ||
		made.SessionID != "s-1" || made.SessionContext != "c" || made.Replayed == nil || *made.Replayed {
		t.Errorf("it is %+v", made)
	}
	if made.Status != "success" && (made.Held != "1.00" || made.Charged != "0.00") {
		t.Errorf("it holds %s and charges %s", made.Held, made.Charged)
	}
	over := a.until(t, made.ID, "success")
	if over.Result == nil || over.Result.URL != "https://files.example/a.mp4" || over.Progress != "100%" || over.CompletedAt == 0 ||
		over.Held != "0.00" || over.Charged != "0.50" || over.SessionContext != "c" || over.KeyID != made.KeyID || over.Replayed != nil {
		t.Errorf("it is %+v", over)
	}
	list := get[page[seenTask]](t, a, "/api/task/self")
	if list.Total != 1 || len(list.Items) != 1 || list.Items[0].ID != made.ID || list.Items[0].Charged != "0.50" {
		t.Errorf("the list is %+v", list)
	}
	if w := g.WalletAtRest(t, a.name); w.Balance.String() != "1.50" {
		t.Errorf("the wallet has %v", w.Balance)
	}
	if usage := get[report](t, a, "/api/data/self?group=model"); len(usage.Items) != 1 || usage.Items[0].Model != "video-test-1" ||
		usage.Total.Calls != 0 || usage.Total.Tasks != 1 || usage.Total.Cost.String() != "0.50" {
		t.Errorf("the usage is %+v", usage)
	}

	picture := a.composes(t, `{"type":"image","model":"image-test-1","prompt":"stays","seed":7,"output":{"count":2}}`)
	if picture.Object != "image_task" || picture.Held != "0.10" || picture.KeyID != made.KeyID {
		t.Errorf("the image is %+v", picture)
	}
	running := a.until(t, picture.ID, "in_progress")
	if running.Progress != "40%" || running.Held != "0.10" || running.Result != nil || running.CompletedAt != 0 {
		t.Errorf("it is %+v", running)
	}

	// The backend and its cost are not shown.
	for _, path := range []string{"/api/task/self/", "/api/task/self/" + made.ID, "/api/task/self/" + picture.ID} {
		body := g.Do(t, "GET", path, a.auth, "").Body
		for _, secret := range []string{"secret-works", "of-the-service", "service.example", "0.0123", "vendor", "handover", `"ref"`, "deadline"} {
			if strings.Contains(body, secret) {
				t.Errorf("%s tells %s: %s", path, secret, body)
			}
		}
	}

	// The hidden key is not in the list of keys, and cannot be used.
	if keys := get[page[struct{}]](t, a, "/api/token/"); keys.Total != 0 {
		t.Errorf("the user has %d keys", keys.Total)
	}
	for _, method := range []string{"GET", "DELETE"} {
		answer, _ := a.ask(t, method, "/api/token/"+made.KeyID, "")
		refused(t, method, answer, 404, "NOT_FOUND")
	}
	g.Verify(t)
}

func TestWhatCannotBeComposedCostsNothing(t *testing.T) {
	g := startGenerating(t, "")
	a := newAccount(t, g)
	g.Credit(t, a.name, "0.60")
	for name, c := range map[string]struct {
		body   string
		status int
		code   string
		says   string
	}{
		"nothing":                  {`{}`, 400, "MISSING_PARAMETER", "`type`"},
		"no type":                  {`{"model":"video-test-1","prompt":"p"}`, 400, "MISSING_PARAMETER", "`type`"},
		"another type":             {`{"type":"film","model":"video-test-1","prompt":"p"}`, 400, "INVALID_PARAMETER", `"film"`},
		"the type in another case": {`{"type":"Video","model":"video-test-1","prompt":"p"}`, 400, "INVALID_PARAMETER", `"Video"`},
		"a type that is a number":  {`{"type":1,"model":"video-test-1","prompt":"p"}`, 400, "INVALID_PARAMETER", "`type`"},
		"the type twice":           {`{"type":"video","type":"image","model":"video-test-1","prompt":"p"}`, 400, "INVALID_PARAMETER", "`type`"},
		"no model":                 {`{"type":"video","prompt":"p"}`, 400, "MISSING_PARAMETER", "`model`"},
		"no prompt":                {`{"type":"video","model":"video-test-1"}`, 400, "MISSING_PARAMETER", "`prompt`"},
		"an unknown name":          {film("p", `"promt":"q"`), 400, "INVALID_PARAMETER", "`promt`"},
		"an unknown name within":   {film("p", `"output":{"lenght":5}`), 400, "INVALID_PARAMETER", "`output.lenght`"},
		"what only images have":    {film("p", `"output":{"count":2}`), 400, "INVALID_PARAMETER", "`output.count`"},
		"an image as a video":      {`{"type":"video","model":"image-test-1","prompt":"p"}`, 400, "INVALID_MODEL", "video-{model_name}-{version}"},
		"no such model":            {`{"type":"video","model":"video-other-1","prompt":"p"}`, 404, "MODEL_NOT_FOUND", "video-other-1"},
		"what the family lacks":    {film("p", `"output":{"duration":7}`), 400, "INVALID_PARAMETER", "output.duration"},
		"a special address":        {film("p", `"inputs":[{"url":"http://127.0.0.1/a.png"}]`), 400, "INVALID_PARAMETER", "inputs[0].url"},
		"a long session":           {film("p", `"session_id":"`+strings.Repeat("s", 51)+`"`), 400, "INVALID_PARAMETER", "session_id"},
		"more than the balance":    {film("p", `"output":{"duration":10}`), 402, "INSUFFICIENT_QUOTA", "1.00"},
	} {
		answer, e := a.ask(t, "POST", "/api/task/self/", c.body)
		refused(t, name, answer, c.status, c.code)
		if !strings.Contains(e.Message, c.says) {
			t.Errorf("%s says %q, not %s", name, e.Message, c.says)
		}
	}
	for name, key := range map[string]string{"empty": "", "two": "a\nIdempotency-Key: b", "too long": strings.Repeat("k", 256), "with a tab": "a\tb"} {
		answer := g.Do(t, "POST", "/api/task/self/", a.auth+"\nContent-Type: application/json\nIdempotency-Key: "+key, film("p"))
		refused(t, "an idempotency key that is "+name, answer, 400, "INVALID_PARAMETER")
	}
	limit := func(limits map[string]any) {
		g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+a.name+"/limits", limits, nil)
	}
	limit(map[string]any{"budget": "0.40"})
	answer, e := a.ask(t, "POST", "/api/task/self/", film("p"))
	refused(t, "more than the budget", answer, 402, "INSUFFICIENT_QUOTA")
	if !strings.Contains(e.Message, "budget of your account has 0.40") {
		t.Errorf("it says %q", e.Message)
	}
	if list := get[page[seenTask]](t, a, "/api/task/self/"); list.Total != 0 {
		t.Errorf("there are tasks: %+v", list)
	}
	if w := g.WalletAtRest(t, a.name); w.Balance.String() != "0.60" {
		t.Errorf("the wallet has %v", w.Balance)
	}

	limit(map[string]any{"budget": "0", "requests_per_second": 1})
	codes := make(map[string]int)
	for i := 0; i < 50 && codes["RATE_LIMITED"] == 0; i++ {
		_, e := a.ask(t, "POST", "/api/task/self/", film("p", `"output":{"duration":10}`))
		codes[e.Code]++
	}
	if codes["RATE_LIMITED"] == 0 || codes["INSUFFICIENT_QUOTA"] == 0 {
		t.Errorf("the rate of the user is not applied: %v", codes)
	}
}

func TestAnIdempotencyKeyMakesOneTask(t *testing.T) {
	g := startGenerating(t, "")
	a, b := newAccount(t, g), newAccount(t, g)
	for _, one := range []account{a, b} {
		g.Credit(t, one.name, "5.00")
	}
	ask := func(one account, body string) (gatetest.Answer, seenTask) {
		t.Helper()
		answer, e := open(t, g.Do(t, "POST", "/api/task/self", one.auth+"\nContent-Type: application/json\nIdempotency-Key: once", body))
		return answer, data[seenTask](t, answer, e)
	}
	_, first := ask(a, film("stays"))
	answer, again := ask(a, `{"prompt":"stays", "type":"video", "model":"video-test-1"}`)
	if again.ID != first.ID || !*again.Replayed || answer.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("again it is %+v with %v", again, answer.Header)
	}
	answer = g.Do(t, "POST", "/api/task/self", a.auth+"\nContent-Type: application/json\nIdempotency-Key: once", film("other"))
	refused(t, "another task", answer, 422, "IDEMPOTENCY_KEY_REUSED")
	if _, other := ask(b, film("other")); other.ID == first.ID || other.KeyID == first.KeyID || *other.Replayed {
		t.Errorf("of another user it is %+v", other)
	}
	if list := get[page[seenTask]](t, a, "/api/task/self"); list.Total != 1 {
		t.Errorf("there are %d tasks", list.Total)
	}
	a.composes(t, film("stays", `"session_id":"s"`))
	refusal, e := a.ask(t, "POST", "/api/task/self/", film("stays", `"session_id":"s"`))
	refused(t, "a session id in use", refusal, 409, "DUPLICATE_SESSION_ID")
	if !strings.Contains(e.Message, "task_") {
		t.Errorf("it does not name the first: %q", e.Message)
	}
}

func TestTasksOfAllKeysAreListedThoseOfRevokedOnesToo(t *testing.T) {
	g := startGenerating(t, "")
	a, b := newAccount(t, g), newAccount(t, g)
	for _, one := range []account{a, b} {
		g.Credit(t, one.name, "50.00")
	}
	key := func(one account) (k gatetest.Key) {
		g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": one.name}, &k)
		return k
	}
	first, second, theirs := key(a), key(a), key(b)
	var all, ofSecond []string
	submit := func(key gatetest.Key, prompt string) string {
		g.Wait(time.Millisecond) // tasks of one millisecond have no order
		return submits(t, g, key.Secret, prompt)
	}
	for range 3 {
		all = append([]string{submit(first, "stays")}, all...)
		all = append([]string{submit(second, "wrong")}, all...)
		ofSecond = append([]string{all[0]}, ofSecond...)
		submit(theirs, "stays")
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+second.ID+"/revoke", nil, nil)
	g.Wait(time.Millisecond)
	composed := a.composes(t, film("stays"))
	all = append([]string{composed.ID}, all...)
	for _, id := range ofSecond {
		if failed := a.until(t, id, "failed"); failed.Error == nil || failed.Error.Code != "TASK_FAILED" || failed.Error.Reason != "MODEL_FAILED" || failed.Charged != "0.00" {
			t.Errorf("it is %+v", failed)
		}
	}
	for query, c := range map[string]struct {
		want  []string
		total int
	}{
		"":                                        {all, 7},
		"?p=1&page_size=3":                        {all[:3], 7},
		"?p=3&page_size=3":                        {all[6:], 7},
		"?p=4&page_size=3":                        {nil, 7},
		"?key_id=" + second.ID:                    {ofSecond, 3},
		"?key_id=" + theirs.ID:                    {nil, 0},
		"?key_id=key_0":                           {nil, 0},
		"?key_id=" + composed.KeyID:               {all[:1], 1},
		"?status=failed":                          {ofSecond, 3},
		"?status=failed&p=2&page_size=2":          {ofSecond[2:], 3},
		"?status=success":                         {nil, 0},
		"?status=failed&key_id=" + first.ID:       {nil, 0},
		"?status=failed&key_id=" + second.ID:      {ofSecond, 3},
		"?status=in_progress&key_id=" + theirs.ID: {nil, 0},
	} {
		list := get[page[seenTask]](t, a, "/api/task/self/"+query)
		var ids []string
		for _, seen := range list.Items {
			ids = append(ids, seen.ID)
		}
		if fmt.Sprint(ids) != fmt.Sprint(c.want) || list.Total != c.total {
			t.Errorf("%q: %v of %d, want %v of %d", query, ids, list.Total, c.want, c.total)
		}
	}
	for _, query := range []string{"?status=done", "?status=Failed", "?p=0", "?key_id=" + strings.Repeat("k", 257)} {
		answer, _ := a.ask(t, "GET", "/api/task/self"+query, "")
		refused(t, query, answer, 400, "INVALID_PARAMETER")
	}
}

func TestATaskOfSomebodyElseIsAsOneThatIsNotThere(t *testing.T) {
	g := startGenerating(t, "")
	a, b := newAccount(t, g), newAccount(t, g)
	g.Credit(t, a.name, "5.00")
	id := a.composes(t, film("stays")).ID
	none := "task_" + strings.Repeat("A", 26)
	for _, c := range [][2]string{{"GET", ""}, {"POST", "/cancel"}} {
		want, _ := b.ask(t, c[0], "/api/task/self/"+none+c[1], "")
		refused(t, "one that is not there", want, 404, "TASK_NOT_FOUND")
		for _, other := range []string{id, strings.ToLower(id), "x", strings.Repeat("x", 300)} {
			if got, _ := b.ask(t, c[0], "/api/task/self/"+other+c[1], ""); got.Body != want.Body || got.Status != want.Status {
				t.Errorf("%s %s%s: answered %d %s, want %s", c[0], other, c[1], got.Status, got.Body, want.Body)
			}
		}
	}
	if seen := get[seenTask](t, a, "/api/task/self/"+id); seen.CompletedAt != 0 {
		t.Errorf("it was cancelled: %+v", seen)
	}
}

func TestAnOwnerCancelsWhatRuns(t *testing.T) {
	g := startGenerating(t, "")
	a := newAccount(t, g)
	g.Credit(t, a.name, "5.00")
	cancel := func(id, body string) (gatetest.Answer, envelope) {
		return a.ask(t, "POST", "/api/task/self/"+id+"/cancel", body)
	}
	id, stubborn, done := a.composes(t, film("stays")).ID, a.composes(t, film("stubborn")).ID, a.composes(t, film("done")).ID
	a.until(t, id, "in_progress")
	answer, _ := cancel(id, `{"reason":"none"}`)
	refused(t, "a body that means nothing", answer, 400, "INVALID_PARAMETER")
	for range 2 { // the second request has no effect
		answer, e := cancel(id, "")
		seen := data[seenTask](t, answer, e)
		if seen.Status != "failed" || seen.Error.Reason != "TASK_CANCELLED" || seen.Held != "0.00" || seen.Charged != "0.00" {
			t.Errorf("it is %+v", seen)
		}
	}
	type event struct{ Action, Actor, Detail string }
	told := 0
	for _, e := range get[page[event]](t, a, "/api/user/activity/").Items {
		if (e == event{"task.cancel", "you", id}) {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the activity tells %d times of it", told)
	}

	a.until(t, stubborn, "in_progress")
	a.until(t, done, "success")
	for what, id := range map[string]string{"one that the service does not stop": stubborn, "one that is over": done} {
		answer, _ := cancel(id, "{}")
		refused(t, what, answer, 409, "TASK_NOT_CANCELLABLE")
	}
	if w := g.Wallet(t, a.name); w.Balance.String() != "4.50" || w.Held.String() != "0.50" {
		t.Errorf("the wallet is %+v, want what one has cost and one still holds", w)
	}
}

// TestTheRequestOfATaskIsShownToItsUser compares what was submitted with what the API shows.
func TestTheRequestOfATaskIsShownToItsUser(t *testing.T) {
	t.Parallel()
	g := startGenerating(t, "")
	a := newAccount(t, g)
	g.Credit(t, a.name, "5.00")
	short := a.composes(t, film("done", `"output":{"duration":10},"inputs":[{"url":"https://pictures.example/a.png","usage":"firstFrame"}]`))
	long := a.composes(t, film("stays "+strings.Repeat("long ", 500)))
	over := a.until(t, short.ID, "success")
	if got := fmt.Sprint(over.Request); over.Form != "video" || over.PriceRule != "1 video × 10 s × 0.10 per second" ||
		got != "map[inputs:[map[category:image url:https://pictures.example/a.png usage:firstFrame]] model:video-test-1 output:map[duration:10 resolution:720P] prompt:done]" {
		t.Errorf("it is %+v with %s", over, got)
	}
	if running := a.until(t, long.ID, "in_progress"); !strings.HasPrefix(fmt.Sprint(running.Request["prompt"]), "stays long") {
		t.Errorf("it is %+v", running)
	}
	a.ask(t, "POST", "/api/task/self/"+long.ID+"/cancel", "")
	if ended := a.until(t, long.ID, "failed"); ended.Request != nil {
		t.Errorf("a long request is kept: %+v", ended)
	}
	var key gatetest.Key
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": a.name}, &key)
	generic := g.Do(t, "POST", "/v1/video/generations", "Authorization: Bearer "+key.Secret, `{"model":"video-test-1","prompt":"done","duration":5,"style":"noir"}`)
	_, rest, _ := strings.Cut(generic.Body, `"task_id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if seen := a.until(t, id, "success"); seen.Form != "generations" || fmt.Sprint(seen.Request) != "map[duration:5 model:video-test-1 prompt:done style:noir]" {
		t.Errorf("it is %+v", seen)
	}
	g.Verify(t)
}

// TestADryRunOnlyPricesATask compares its price with what is held afterwards.
func TestADryRunOnlyPricesATask(t *testing.T) {
	t.Parallel()
	g := startGenerating(t, "")
	a := newAccount(t, g)
	g.Credit(t, a.name, "1.00")
	body := film("stays", `"output":{"duration":10}`)
	price := post[struct{ Price, Hold, Rule, Family string }](t, a, "/api/task/self/?dry_run=true", body)
	if price.Price != "1.00" || price.Hold != "1.00" || price.Rule != "1 video × 10 s × 0.10 per second" || price.Family != "A" {
		t.Errorf("it is %+v", price)
	}
	answer, _ := a.ask(t, "POST", "/api/task/self/?dry_run", body)
	refused(t, "a flag without a value", answer, 400, "INVALID_PARAMETER")
	answer, _ = a.ask(t, "POST", "/api/task/self/?dry_run=true", film("stays", `"output":{"duration":7}`))
	refused(t, "a wrong duration", answer, 400, "INVALID_PARAMETER")
	if w := g.WalletAtRest(t, a.name); w.Balance.String() != "1.00" || w.Held != 0 {
		t.Errorf("the wallet is %+v", w)
	}
	if made := a.composes(t, body); made.Held != price.Hold {
		t.Errorf("it holds %s", made.Held)
	}
}

func TestTheModelsOfTheSiteAreListed(t *testing.T) {
	t.Parallel()
	g := startGenerating(t, "")
	a := newAccount(t, g)
	type model struct {
		Model, Pattern, Type, Family string
		Duration, Count              struct {
			Allowed []string
			Default int
		}
		Max int `json:"max_inputs"`
	}
	list := get[page[model]](t, a, "/api/task/models/")
	if got := fmt.Sprint(list.Items); list.Total != 2 || got != "[{image-test-1 image-test-* image A {[] 0} {[1-9] 1} 10} {video-test-1 video-test-* video A {[5 10] 5} {[] 0} 7}]" {
		t.Errorf("%d: %s", list.Total, got)
	}
	if one := get[page[model]](t, a, "/api/task/models/?model=video-test-other"); one.Total != 1 || one.Items[0].Model != "video-test-other" || one.Items[0].Family != "A" {
		t.Errorf("it is %+v", one)
	}
	for _, name := range []string{"video-other-1", "chat-1", "film-test-1", "video-test,1", "x"} {
		if none := get[page[model]](t, a, "/api/task/models/?model="+name); none.Total != 0 {
			t.Errorf("%s is %+v", name, none)
		}
	}
	if calls := get[page[model]](t, a, "/api/user/models/"); calls.Total != 1 || calls.Items[0].Model != "priced" {
		t.Errorf("the models for calls are %+v", calls)
	}
}
