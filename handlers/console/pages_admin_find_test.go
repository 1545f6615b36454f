package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// seeks sends a text by the search of the administration.
func (b *browser) seeks(t testing.TB, text string) gatetest.Answer {
	t.Helper()
	return b.fills(t, "/console/admin", "find", map[string]string{"text": text})
}

// transfer returns the transfer that has credited the first order.
func (a *administered) transfer(t testing.TB) string {
	t.Helper()
	var order struct {
		Transfers []struct {
			ID string `json:"transfer_id"`
		}
	}
	a.MustAdmin(t, http.MethodGet, "/modelgate/orders/"+a.orders[0], nil, &order)
	return order.Transfers[0].ID
}

func TestFindLeadsToWhatAnIDNames(t *testing.T) {
	t.Parallel()
	g := start(t)
	b, name := withRole(t, g, "support")
	for id, path := range map[string]string{
		"req_1": "/calls/req_1", " task_2 ": "/tasks/task_2", "usr_3": "/users/usr_3", "": "/users?q=", "req_/../x?y": "/calls/req_%2F..%2Fx%3Fy",
	} {
		leads(t, b.seeks(t, id), "/console/admin"+path)
	}
	for _, nothing := range []string{"ann & bob", "https://evil.example", "pi_5", "key_4", "sk-none", strings.Repeat("a1", 16), "ann@example.org"} {
		shows(t, b.seeks(t, nothing), 200, "Nothing has this name, number or id.", "Not searchable: ")
	}
	shows(t, b.seeks(t, `"><script>`), 200, `value="&#34;&gt;&lt;script&gt;"`)
	shows(t, b.page(t, "/console/admin/users?q="+name[:8]), 200, name, "Support")
	shows(t, b.page(t, "/console/admin/users?q=%22%3E%3Cscript%3E"), 200, "No user has this name or id.", `value="&#34;&gt;&lt;script&gt;"`)
}

// TestFindKnowsWhatPagesShow looks for what a person copies from a page, a mail or a file.
func TestFindKnowsWhatPagesShow(t *testing.T) {
	a := administer(t)
	user := "/console/admin/users/" + a.id
	var named struct {
		ID, Hint, Secret string
		APIKey           string `json:"api_key"`
	}
	a.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": a.customer.name, "name": "Nightly batch"}, &named)
	console := read[struct {
		ID string `json:"console_key_id"`
	}](t, a.browser, "/api/user/self").ID
	for _, role := range []string{"support", "finance"} {
		b, _ := withRole(t, a.Gate, role)
		for text, path := range map[string]string{
			named.ID: user + "#" + named.ID, named.Hint: user + "#" + named.ID, named.Hint[:7] + "…": user + "#" + named.ID, named.Hint[:7] + "...": user + "#" + named.ID, named.Hint[:7]: user + "#" + named.ID,
			named.APIKey: user + "#" + named.ID, named.APIKey[:20]: user + "#" + named.ID,
			"nightly": user + "#" + named.ID, "Nightly batch": user + "#" + named.ID, console: user + "?done=console_key",
			a.orders[0]: "/console/admin/orders/" + a.orders[0], strings.ToLower(a.orders[0]): "/console/admin/orders/" + a.orders[0], a.orders[0][:8]: "/console/admin/orders/" + a.orders[0], a.orders[0][:8] + "…": "/console/admin/orders/" + a.orders[0],
			a.transfer(t): "/console/admin/transfers/" + a.transfer(t), a.customer.name: user,
		} {
			leads(t, b.seeks(t, text), path)
		}
		shows(t, b.page(t, user+"?done=console_key"), 200, "This key belongs to this user.")
		shows(t, b.page(t, "/console/admin/transfers/"+a.transfer(t)), 200, "Transfer: Top-up", a.orders[0], ">"+a.customer.name+"<", "&#43;40.00")
		// Two keys with one name.
		shows(t, b.seeks(t, "<b>"), 200, a.customer.keys[0].ID, a.customer.keys[1].ID, ">"+a.customer.name+"<")
	}
	b, _ := withRole(t, a.Gate, "support")
	shows(t, b.page(t, user), 200, `<tr id="`+named.ID+`">`)
	shows(t, b.page(t, "/console/admin/transfers/"+strings.Repeat("0", 32)), 404)
}

func TestFindByEmailIsForSupport(t *testing.T) {
	s, config := mailing(t)
	g := gatetest.Start(t, config)
	customer, partner := newBrowser(g), newBrowser(g)
	customer.registers(t)
	partner.registers(t)
	customer.confirms(t, s, "Ann@example.org")
	id := customer.mailed(t).ID
	support, _ := withRole(t, g, "support")
	finance, _ := withRole(t, g, "finance")
	leads(t, support.seeks(t, "ann@EXAMPLE.org"), "/console/admin/users/"+id)
	if found := finance.seeks(t, "ann@example.org"); found.Status != 200 || strings.Contains(found.Body, id) || strings.Contains(found.Body, "e-mail") {
		t.Errorf("finance finds %d %s", found.Status, found.Body)
	}
	partner.confirms(t, s, "ann@example.org") // users may share an address
	shows(t, support.seeks(t, "ann@example.org"), 200, id, partner.mailed(t).ID)
	customer.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"email":"","password":%q}`, password))
	leads(t, support.seeks(t, "ann@example.org"), "/console/admin/users/"+partner.mailed(t).ID)
}

// TestASecretThatIsSearchedForGoesNowhere pastes a whole key and token into the search, with and without a
// session, and looks for it in URLs, pages and the log.
func TestASecretThatIsSearchedForGoesNowhere(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "support")
	var minted struct {
		Token string `json:"access_token"`
	}
	a.MustAdmin(t, http.MethodPost, "/modelgate/users/"+a.customer.name+"/token", nil, &minted)
	form, _ := filled(t, b.page(t, "/console/admin"), "find")
	page := b.page(t, "/console/admin").Body
	if strings.Contains(page, `method="get" action="/console/admin/find"`) || !strings.Contains(b.page(t, "/console/admin/calls").Body, `pattern="(?!sk-|mgat_).*"`) {
		t.Errorf("a browser puts what is searched for into a URL: %s", page)
	}
	for _, secret := range []string{a.customer.keys[0].Secret, minted.Token, a.customer.keys[0].Secret[:30]} {
		form.Set("text", secret)
		found := b.sends(t, "/console/admin/find", form)
		ended := newBrowser(a.Gate).sends(t, "/console/admin/find", form)
		for _, answer := range []gatetest.Answer{found, ended} {
			if strings.Contains(answer.Body+answer.Header.Get("Location"), secret) || answer.Status >= 500 {
				t.Errorf("the answer has the secret: %d %s", answer.Status, answer.Body)
			}
		}
		if a.Logged(secret) {
			t.Errorf("the log has the secret %s", secret)
		}
	}
	shows(t, newBrowser(a.Gate).sends(t, "/console/admin/find", form), 401, form.Get("text")[:7]+"…")
	b.refused(t, "GET", "/api/admin/find?text="+url.QueryEscape(a.customer.keys[0].Secret), "", 400, "INVALID_PARAMETER")
}

// TestFindReadsAtMostAPage counts the keys of the store that a search reads among many users and keys.
func TestFindReadsAtMostAPage(t *testing.T) {
	g := start(t)
	b, _ := withRole(t, g, "support")
	for i := range 150 {
		name := fmt.Sprintf("many-%03d", i)
		g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": name}, nil)
		for range 3 {
			g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": name, "name": "production"}, nil)
		}
	}
	form, _ := filled(t, b.page(t, "/console/admin"), "find")
	for text, want := range map[string]string{"production": "There are more.", "many-": "", "sk-": "There are more.", "many@example.org": "Nothing has", "nothing": "Nothing has", "AAAAAAAA": "Nothing has"} {
		form.Set("text", text)
		before := g.Reads()
		answer := b.sends(t, "/console/admin/find", form)
		read := g.Reads() - before
		if !strings.Contains(answer.Body, want) || read > 100 {
			t.Errorf("%q is answered %d after %d reads:\n%s", text, answer.Status, read, answer.Body)
		}
	}
}

// TestTheCallsOfAKeyReadItsOwnerAlone counts the keys of the store that lists read among many users.
func TestTheCallsOfAKeyReadItsOwnerAlone(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "support")
	read := func(path string) int64 {
		t.Helper()
		b.page(t, path) // the session is marked as used now
		before := a.Reads()
		shows(t, b.page(t, path), 200, a.customer.name)
		return a.Reads() - before
	}
	paths := []string{"/console/admin/calls?key=" + a.customer.keys[0].ID, "/console/admin/calls?user=" + a.id, "/console/admin/orders", "/console/admin/users?q=" + a.customer.name}
	alone := map[string]int64{}
	for _, path := range paths {
		alone[path] = read(path)
	}
	for i := range 200 {
		a.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": fmt.Sprintf("more-%03d", i)}, nil)
	}
	for _, path := range paths {
		if many := read(path); many > alone[path]+10 {
			t.Errorf("%s reads %d keys among many users, and %d before", path, many, alone[path])
		}
	}
}
