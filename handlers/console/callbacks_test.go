package console_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// seenDelivery is a callback as the console shows it.
type seenDelivery struct {
	ID       string
	Task     string `json:"task_id"`
	Key      string `json:"key_id"`
	State    string
	Attempts int
	Status   int
	Trouble  string
	URL      string
}

// startWithReceiver starts a gate and a receiver of callbacks. The callbacks of keys without an
// address go to /default of the receiver.
func startWithReceiver(t *testing.T) (*gatetest.Gate, *receiver) {
	t.Helper()
	r := newReceiver(t)
	return startGenerating(t, `
		callback {
			url `+r.URL+`/default
			secret whsec_`+strings.Repeat("QUFB", 12)+`
			allow `+strings.TrimPrefix(r.URL, "http://")+`
		}
	`), r
}

// newKeyFor makes a key with a callback address.
func (b *browser) newKeyFor(t testing.TB, url string) (key gatetest.Key) {
	t.Helper()
	into(t, b.does(t, "POST", "/api/token/", `{"password":"`+password+`","callback_url":"`+url+`"}`), &key)
	if url != "" {
		b.does(t, "POST", "/api/token/"+key.ID+"/callback_secret", "")
	}
	return key
}

// delivered waits until the callback of a task is delivered.
func (b *browser) delivered(t testing.TB, task string) seenDelivery {
	t.Helper()
	is := func(d seenDelivery) bool { return d.Task == task && d.State == "delivered" }
	list := gatetest.Eventually(t, "the callback of "+task+" is delivered", func() (list page[seenDelivery], ok bool) {
		into(t, b.does(t, "GET", "/api/callback/deliveries", ""), &list)
		return list, slices.ContainsFunc(list.Items, is)
	})
	return list.Items[slices.IndexFunc(list.Items, is)]
}

func TestCallbacksAreSeenAndSentAgain(t *testing.T) {
	g, r := startWithReceiver(t)
	b, other := newBrowser(g), newBrowser(g)
	g.Credit(t, b.registers(t), "5.00")
	other.registers(t)
	key := b.newKeyFor(t, r.URL+"/mine")
	id := submits(t, g, key.Secret, "done")
	first := b.delivered(t, id)
	if first.ID != r.had(t, "/mine", 1)[0] || first.Key != key.ID || first.Attempts != 1 || first.Status != 200 || first.Trouble != "" || first.URL != r.URL+"/mine" {
		t.Errorf("it is %+v", first)
	}

	for i, name := range []string{first.ID, id} {
		var again seenDelivery
		into(t, b.does(t, "POST", "/api/callback/deliveries/"+name+"/redeliver", ""), &again)
		if again.ID != first.ID || again.State != "undelivered" || again.URL != first.URL {
			t.Errorf("it is %+v", again)
		}
		for _, id := range r.had(t, "/mine", i+2) {
			if id != first.ID {
				t.Errorf("it was sent as %s, want %s", id, first.ID)
			}
		}
		if seen := b.delivered(t, id); seen.Attempts != i+2 {
			t.Errorf("it is %+v", seen)
		}
	}
	for _, name := range []string{first.ID, id} {
		other.refused(t, "POST", "/api/callback/deliveries/"+name+"/redeliver", "", 404, "NOT_FOUND")
	}
	b.refused(t, "POST", "/api/callback/deliveries/evt_0/redeliver", "", 404, "NOT_FOUND")
	b.refused(t, "POST", "/api/callback/deliveries/"+id+"/redeliver", `{"url":"https://else.example"}`, 400, "INVALID_PARAMETER")

	// A revoked key still belongs to the user, and so do its callbacks.
	b.does(t, "DELETE", "/api/token/"+key.ID, "")
	seen := func(b *browser, query string) (list page[seenDelivery]) {
		into(t, b.does(t, "GET", "/api/callback/deliveries/"+query, ""), &list)
		return list
	}
	if list := seen(b, "?page_size=1"); list.Total != 1 || len(list.Items) != 1 || list.Items[0].URL != first.URL {
		t.Errorf("the callbacks are %+v", list)
	}
	if list := seen(b, "?p=2&page_size=1"); list.Total != 1 || len(list.Items) != 0 {
		t.Errorf("the second page is %+v", list)
	}
	if list := seen(other, ""); list.Total != 0 || len(list.Items) != 0 {
		t.Errorf("the list of another user is %+v", list)
	}

	type event struct{ Action, Actor, Key, Detail string }
	var activity page[event]
	into(t, b.does(t, "GET", "/api/user/activity/", ""), &activity)
	redelivered := 0
	for _, e := range activity.Items {
		if (e == event{"callback.redeliver", "you", key.ID, id}) {
			redelivered++
		}
	}
	if redelivered != 2 {
		t.Errorf("the activity lists %d redeliveries: %+v", redelivered, activity.Items)
	}
}

func TestTheCallbackAddressOfTheOperatorIsNotShown(t *testing.T) {
	g, r := startWithReceiver(t)
	b := newBrowser(g)
	g.Credit(t, b.registers(t), "5.00")
	var composed seenTask
	into(t, b.does(t, "POST", "/api/task/self/", film("done")), &composed)
	bare := b.newKeyFor(t, "")
	id := submits(t, g, bare.Secret, "done")
	if seen := b.delivered(t, composed.ID); !slices.Contains(r.had(t, "/default", 1), seen.ID) || seen.URL != "" || seen.Key != composed.KeyID {
		t.Errorf("the callback of a composed task is %+v", seen)
	}
	if seen := b.delivered(t, id); seen.URL != "" {
		t.Errorf("the callback of a key without an address is %+v", seen)
	}
	// The user cannot test it either.
	for what, key := range map[string]string{"a key without an address": bare.ID, "the hidden key": composed.KeyID} {
		answer, _ := b.ask(t, "POST", "/api/callback/test", `{"key_id":"`+key+`"}`)
		refused(t, what, answer, 404, "NOT_FOUND")
		if strings.Contains(answer.Body, r.URL) {
			t.Errorf("%s: %s", what, answer.Body)
		}
	}
	if answer := g.Do(t, "GET", "/api/callback/deliveries", b.cookies(), ""); strings.Contains(answer.Body, "/default") {
		t.Errorf("the answer contains the operator's address: %s", answer.Body)
	}
	if n := len(r.had(t, "/default", 2)); n != 2 {
		t.Errorf("the operator had %d callbacks", n)
	}
}

func TestACallbackAddressIsTried(t *testing.T) {
	g, r := startWithReceiver(t)
	b, other := newBrowser(g), newBrowser(g)
	b.registers(t)
	other.registers(t)
	key := b.newKeyFor(t, r.URL+"/mine")
	for body, want := range map[string]string{`{}`: "MISSING_PARAMETER", `{"key_id":""}`: "MISSING_PARAMETER", `{"key_id":1}`: "INVALID_PARAMETER", `{"key_id":"` + key.ID + `","url":"https://else.example"}`: "INVALID_PARAMETER"} {
		b.refused(t, "POST", "/api/callback/test", body, 400, want)
	}
	b.refused(t, "POST", "/api/callback/test", `{"key_id":"key_0"}`, 404, "NOT_FOUND")
	other.refused(t, "POST", "/api/callback/test", `{"key_id":"`+key.ID+`"}`, 404, "NOT_FOUND")

	var tried seenDelivery
	into(t, b.does(t, "POST", "/api/callback/test", `{"key_id":"`+key.ID+`"}`), &tried)
	if had := r.had(t, "/mine", 1); len(had) != 1 || tried.ID != had[0] || tried.State != "delivered" || tried.Status != http.StatusOK || tried.Key != key.ID || tried.Task != "" {
		t.Errorf("it is %+v, and came as %v", tried, had)
	}
	b.does(t, "PUT", "/api/token/"+key.ID, `{"password":"`+password+`","callback_url":"http://closed.internal/closed"}`)
	var closed seenDelivery
	into(t, b.does(t, "POST", "/api/callback/test", `{"key_id":"`+key.ID+`"}`), &closed)
	if closed.State != "dead" || closed.Status != 0 || closed.Trouble != "the receiver cannot be reached" {
		t.Errorf("the test of a forbidden address: %+v", closed)
	}

	// Without a limit, users could flood a receiver through the gateway.
	for i := range 200 {
		answer, e := b.ask(t, "POST", "/api/callback/test", `{"key_id":"`+key.ID+`"}`)
		if e.Code == "RATE_LIMITED" {
			if i < 50 || answer.Header.Get("Retry-After") == "" {
				t.Errorf("refused after %d: %v", i, answer.Header)
			}
			other.refused(t, "POST", "/api/callback/test", `{"key_id":"key_0"}`, 404, "NOT_FOUND")
			return
		}
	}
	t.Error("tests of callbacks have no rate limit")
}
