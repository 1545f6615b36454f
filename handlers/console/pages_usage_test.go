package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// languages asks for a page in each language, by the cookie of the language.
func (b *browser) languages(t *testing.T, path string, status int) map[string]string {
	t.Helper()
	bodies := make(map[string]string)
	for _, language := range []string{"zh", "en"} {
		b.jar["modelgate_language"] = language
		answer := b.page(t, path)
		shows(t, answer, status, `<html lang="`+language+`"`)
		bodies[language] = answer.Body
	}
	return bodies
}

// newPageSpender is newSpender with a browser, which is logged in.
func newPageSpender(t *testing.T, g *gatetest.Gate) (spender, *browser) {
	t.Helper()
	b := newBrowser(g)
	a := account{gate: g, name: b.registers(t)}
	var minted struct {
		Token string `json:"access_token"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+a.name+"/token", nil, &minted)
	a.auth = "Authorization: Bearer " + minted.Token
	return newSpender(t, g, a), b
}

func TestTheOverviewLeadsToTheFirstCall(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: pricedApp, Site: site + "modelgate_tasks\n"})
	b := newBrowser(g)
	name := b.registers(t)
	for _, body := range b.languages(t, "/console", 200) {
		if !strings.Contains(body, `class="steps"`) || strings.Contains(body, `class="done"`) || !strings.Contains(body, g.URL("/v1/chat/completions")) || !strings.Contains(body, "dear") || strings.Contains(body, "<meter") {
			t.Errorf("the overview of a new user is %s", body)
		}
	}
	shows(t, b.page(t, "/console/usage"), 200, "No calls yet.", `class="empty"`)
	g.Credit(t, name, "10.00")
	key := g.NewKey(t, map[string]any{"user": name})
	if n := strings.Count(b.page(t, "/console").Body, `class="done"`); n != 2 {
		t.Errorf("%d steps are done with a key and money", n)
	}
	g.Backend.On("priced", gatetest.JSON(200, `{"choices":[{"text":"four","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`))
	if got := g.Do(t, "POST", "/v1/completions", "X-Api-Key: "+key.Secret, `{"model":"priced","prompt":"hello"}`); got.Status != 200 {
		t.Fatalf("a call is answered %d %s", got.Status, got.Body)
	}
	g.WalletAtRest(t, name)
	if body := b.page(t, "/console").Body; strings.Contains(body, `class="steps"`) {
		t.Error("the steps are shown after the first call")
	}
}

func TestTheFiguresOfTheOverviewAreThoseOfTheAPI(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: pricedApp, Site: site + "modelgate_tasks\n"})
	s, b := newPageSpender(t, g)
	g.MustAdmin(t, http.MethodPost, "/modelgate/subscriptions", map[string]any{"user": s.name, "plan_id": 1, "reason": "a present", "idempotency_key": "present"}, nil)
	today := g.Now().UTC().Format(time.DateOnly)
	shows(t, b.page(t, "/console"), 200, "9.049298 USD", "0.950702 USD", `<p class="figure">6</p>`, "83.3 % accepted, 1 refused", "5,000", "Nothing of it is set aside",
		`<meter min="0" max="12.00" value="0.00"`, "Starter",
		"<title>"+today+": 0.950702\npriced: 0.75\ndear: 0.200702</title>", `<td class="num" data-label="priced">0.75</td>`, `<strong>0.950702</strong>`,
		`class="s0"`, `class="s1"`, "No tasks yet.")
	b.languages(t, "/console", 200)
	// The list of keys says on which day each was used last.
	g.NewKey(t, map[string]any{"user": s.name})
	shows(t, b.page(t, "/console/keys"), 200, `<span class="nowrap">`+today+`</span>`, "Not in the last 30 days")
	shows(t, b.page(t, "/console/keys/"+s.keys[0].ID), 200, `<span class="nowrap">`+today+`</span>`, `href="/console/usage?key_id=`+s.keys[0].ID+`"`)
}

func TestTheUsagePageFilters(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: pricedApp, Site: site})
	s, b := newPageSpender(t, g)
	other := newBrowser(g)
	other.registers(t)
	today := g.Now().UTC().Format(time.DateOnly)
	rows := func(body string) int { return strings.Count(body, `href="/console/usage/req_`) }
	for _, body := range b.languages(t, "/console/usage", 200) {
		if rows(body) != len(s.ids) {
			t.Errorf("%d of %d calls are listed", rows(body), len(s.ids))
		}
	}
	for query, want := range map[string]int{
		"model=dear": 2, "key_id=" + s.keys[0].ID: 4, "start=" + today: 6, "start=&end=&key_id=&model=": 6, "end=2026-01-01": 0, "p=2": 0, "model=" + url.QueryEscape(strangeModel): 0, "model=" + url.QueryEscape(`"><b>`): 0,
	} {
		path := "/console/usage?" + query
		list := get[page[called]](t, s.account, "/api/log/self?"+query)
		answer := b.page(t, path)
		shows(t, answer, 200)
		if got := rows(answer.Body); got != want || got != len(list.Items) {
			t.Errorf("%s: %d calls, the API has %d, want %d", query, got, len(list.Items), want)
		}
		for _, c := range list.Items {
			if !strings.Contains(answer.Body, c.RequestID) || !strings.Contains(answer.Body, `class="num">`+c.Cost.String()+`</td>`) {
				t.Errorf("%s: %+v is not shown", query, c)
			}
		}
	}
	shows(t, b.page(t, "/console/usage?model=dear&start="+today), 200, "0.200702 USD", `value="dear"`, `value="`+today+`"`,
		`href="/console/download?of=`+url.QueryEscape("/api/log/self/?format=csv&model=dear&start="+today)+`"`, `value="0.200702"`)
	for query, param := range map[string]string{
		"start=yesterday": "start", "start=2026-02-02&end=2026-02-01": "end", "start=2020-01-01": "start", "p=0": "p", "model=" + strings.Repeat("m", 10_000): "model",
	} {
		answer := b.page(t, "/console/usage?"+query)
		shows(t, answer, 400, `role="alert"`, "“"+param+"”")
	}
	if body := other.page(t, "/console/usage?key_id="+s.keys[0].ID).Body; rows(body) != 0 || strings.Contains(body, "dear") {
		t.Errorf("another user sees %s", body)
	}
	for _, path := range []string{"/console", "/console/usage"} {
		if body := b.page(t, path).Body; strings.Contains(body, "<script>alert") || strings.Contains(body, g.Backend.Address) {
			t.Errorf("%s has what it must not have: %s", path, body)
		}
	}
	shows(t, b.page(t, "/console/usage"), 200, "<bdi>=&lt;script&gt;alert(&#34;שלום😀&#34;)&lt;/script&gt;</bdi>",
		"<bdi>&lt;b&gt;שלום&lt;/b&gt; &amp; 😀</bdi>")
}

func TestThePageOfACall(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: pricedApp, Site: site})
	s, b := newPageSpender(t, g)
	other := newBrowser(g)
	other.registers(t)
	path := "/console/usage/" + s.ids[1]
	call := get[detail](t, s.account, "/api/log/self/"+s.ids[1])
	answer := b.page(t, path)
	shows(t, answer, 200, s.ids[1], s.keys[0].ID, "&lt;b&gt;שלום&lt;/b&gt;", "0.100351 USD", "200 OK", "Input read from the cache", ">1,000</td>", "0.30 per million",
		"Price of a request", call.Paid[0].Transfer, "The answer is complete. The tokens that the model reported are charged.")
	for _, item := range call.Breakdown.Parts[0].Tokens {
		shows(t, answer, 200, item.Price+" per million", ">"+item.Cost+"</td>")
	}
	if strings.Contains(answer.Body, g.Backend.Address) {
		t.Error("the page names the backend")
	}
	shows(t, b.page(t, "/console/usage/"+s.ids[5]), 200, "404 refused", "The call was refused. Nothing is charged.", "Nothing was paid for this call.", "&lt;script&gt;")
	for _, id := range s.ids {
		b.languages(t, "/console/usage/"+id, 200)
	}
	shows(t, other.page(t, path), 404, "<code>NOT_FOUND</code>")
	shows(t, b.page(t, "/console/usage/req_none"), 404, "<code>NOT_FOUND</code>")
	leads(t, newBrowser(g).page(t, path), "/console/login?next="+url.QueryEscape(path))
}

func TestALongListOfCallsHasPages(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: pricedApp, Site: site})
	s, b := newPageSpender(t, g)
	for range 20 {
		if got := g.Do(t, "POST", "/v1/completions", "X-Api-Key: "+s.keys[1].Secret, `{"model":"dear","prompt":"hello"}`); got.Status != 200 {
			t.Fatalf("a call is answered %d %s", got.Status, got.Body)
		}
	}
	g.WalletAtRest(t, s.name)
	shows(t, b.page(t, "/console/usage?model=dear"), 200, "Page 1 of 2", `href="/console/usage?model=dear&amp;p=2"`, fmt.Sprint(22, " calls"))
	shows(t, b.page(t, "/console/usage?model=dear&p=2"), 200, "Page 2 of 2", s.ids[1])
}
