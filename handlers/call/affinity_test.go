package call_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// upstream is a backend that tells its number in its answers.
type upstream struct {
	*httptest.Server
	busy atomic.Bool // it answers 503
}

// upstreams starts backends, and returns them with their addresses.
func upstreams(t *testing.T, count int) (list []*upstream, addresses string) {
	t.Helper()
	for i := range count {
		u := new(upstream)
		u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			code := http.StatusOK
			if u.busy.Load() {
				code = http.StatusServiceUnavailable
			}
			gatetest.JSON(code, fmt.Sprintf(`{"served_by":%d}`, i))(w, r)
		}))
		t.Cleanup(u.Close)
		list = append(list, u)
		addresses += " " + strings.TrimPrefix(u.URL, "http://")
	}
	return list, addresses
}

// servedBy makes a call and returns the number of the backend that answered.
func servedBy(t *testing.T, g *gatetest.Gate, secret, cacheKey string) (number int) {
	t.Helper()
	more := ""
	if cacheKey != "" {
		more = fmt.Sprintf(`,"prompt_cache_key":%q`, cacheKey)
	}
	got := post(t, g, chat, secret, "m", streamed+more) // the gateway inserts a member before prompt_cache_key
	if _, err := fmt.Sscanf(got.Body, `{"served_by":%d}`, &number); err != nil || got.Status != 200 {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	return number
}

func TestRelatedCallsGoToTheSameUpstream(t *testing.T) {
	for by, c := range map[string]struct{ byCache, byKey, byUser bool }{
		"":                 {true, true, false},
		"prompt_cache_key": {true, true, false},
		"key":              {false, true, false},
		"user":             {false, false, true},
	} {
		t.Run(by, func(t *testing.T) {
			_, addresses := upstreams(t, 3)
			g := gatetest.Start(t, gatetest.Config{Site: "modelgate_completions {\nreverse_proxy" + addresses + " {\nlb_policy modelgate_affinity " + by + "\n}\n}"})
			var first gatetest.Key
			cached, keyed, shared := map[int]int{}, map[int]int{}, map[int]int{}
			for i := range 40 {
				var key gatetest.Key
				if i == 0 {
					first = g.NewKey(t, nil)
					key = first
				} else {
					g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": first.UserID}, &key)
				}
				number := servedBy(t, g, key.Secret, "")
				if again := servedBy(t, g, key.Secret, ""); again != number {
					t.Fatalf("a key was served by %d and %d", number, again)
				}
				keyed[number]++
				name := fmt.Sprint("conversation-", i)
				number = servedBy(t, g, first.Secret, name)
				if again := servedBy(t, g, first.Secret, name); again != number {
					t.Fatalf("a conversation was served by %d and %d", number, again)
				}
				if other := servedBy(t, g, key.Secret, name); other != number && by != "key" {
					t.Fatalf("the conversation of a user was served by %d and, with another key, by %d", number, other)
				}
				cached[number]++
				shared[servedBy(t, g, g.NewKey(t, nil).Secret, "shared")]++ // each of another user
			}
			if got := len(cached) == 3; got != c.byCache {
				t.Errorf("conversations of a key: %v", cached)
			}
			if got := len(keyed) == 3; got != c.byKey {
				t.Errorf("keys of a user: %v", keyed)
			}
			if len(shared) != 3 {
				t.Errorf("one conversation of many users: %v", shared)
			}
		})
	}
}

func TestOnlyCallsOfAnUpstreamThatIsDownMove(t *testing.T) {
	list, addresses := upstreams(t, 3)
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_completions {\nreverse_proxy" + addresses + " {\n" + `
		lb_policy modelgate_affinity
		lb_retries 2
		lb_retry_match {
			expression ` + "`{rp.status_code} == 503`" + `
		}
		request_buffers 33MiB
	}
	}`})
	key := g.NewKey(t, nil).Secret
	before, down := make([]int, 60), make([]int, 60)
	for i := range before {
		before[i] = servedBy(t, g, key, fmt.Sprint(i))
	}
	list[1].busy.Store(true)
	moved := map[int]int{}
	for i := range down {
		down[i] = servedBy(t, g, key, fmt.Sprint(i))
		if before[i] != 1 && down[i] != before[i] || down[i] == 1 {
			t.Errorf("conversation %d moved from %d to %d", i, before[i], down[i])
		}
		if before[i] == 1 {
			moved[down[i]]++
		}
	}
	if len(moved) != 2 {
		t.Errorf("the calls moved to %v", moved)
	}
	list[1].Close() // refuses connections
	for i := range down {
		if got := servedBy(t, g, key, fmt.Sprint(i)); got != down[i] {
			t.Errorf("conversation %d moved from %d to %d", i, down[i], got)
		}
	}
	list[0].busy.Store(true)
	list[2].busy.Store(true)
	if got := post(t, g, chat, key, "m", ""); got.Status != 503 { // each was tried
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
}

func TestAffinityOutsideOfACallIsRandom(t *testing.T) {
	_, addresses := upstreams(t, 2)
	g := gatetest.Start(t, gatetest.Config{Site: "reverse_proxy" + addresses + " {\nlb_policy modelgate_affinity key\n}"})
	seen := map[string]bool{}
	for range 64 {
		seen[g.Do(t, http.MethodGet, "/", "", "").Body] = true
	}
	if len(seen) != 2 {
		t.Errorf("answered %v", seen)
	}
	for _, words := range []string{"address", "key user"} {
		err := g.Reload(gatetest.Config{Site: "reverse_proxy" + addresses + " {\nlb_policy modelgate_affinity " + words + "\n}"})
		if err == nil || !strings.Contains(err.Error(), "modelgate_affinity") && !strings.Contains(err.Error(), "argument count") {
			t.Errorf("%s: the error is %v", words, err)
		}
	}
}

// vendorKeys is a site that chooses the vendor's key by the user: own keys for two users, and a group
// of keys for the others.
const vendorKeys = `
	modelgate_messages {
		map {http.auth.user.id} {vendor_key} {
			USER-1 {env.TEST_KEY_ONE}
			USER-2 {env.TEST_KEY_TWO}
			default {env.TEST_KEY_OTHERS}
		}
		reverse_proxy BACKEND {
			header_up X-Api-Key {vendor_key}
		}
	}
	modelgate_completions {
		map {http.modelgate.user_slot.3} {vendor_key} {
			0 {env.TEST_KEY_ONE}
			1 {env.TEST_KEY_TWO}
			2 {env.TEST_KEY_OTHERS}
		}
		reverse_proxy BACKEND {
			header_up Authorization "Bearer {vendor_key}"
		}
	}
`

func TestTheVendorsKeyIsChosenByTheUser(t *testing.T) {
	secrets := []string{"opaque-one-81c5", "opaque-two-27aa", "opaque-others-e09d"}
	for i, name := range []string{"TEST_KEY_ONE", "TEST_KEY_TWO", "TEST_KEY_OTHERS"} {
		t.Setenv(name, secrets[i])
	}
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	users := make([]gatetest.Key, 40)
	for i := range users {
		users[i] = g.NewKey(t, nil)
	}
	site := strings.NewReplacer("USER-1", users[0].UserID, "USER-2", users[1].UserID).Replace(vendorKeys)
	if err := g.Reload(gatetest.Config{Site: site}); err != nil {
		t.Fatal(err)
	}
	echo := func(w http.ResponseWriter, r *http.Request) { // a backend that shows the credential
		w.Header().Set("Request-Id", "req-"+r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"))
		w.Header().Set("Retry-After", "7")
		gatetest.JSON(http.StatusOK, messageAnswer)(w, r)
	}
	g.Backend.On("m", echo)
	for i, user := range users[:4] {
		got := post(t, g, messages, user.Secret, "m", "")
		seen := g.Backend.Seen("m")[i]
		if key := seen.Header["X-Api-Key"]; !slices.Equal(key, []string{secrets[min(i, 2)]}) {
			t.Errorf("user %d: the backend received %q", i, key)
		}
		for _, values := range got.Header {
			if strings.Contains(strings.Join(values, " "), "opaque") {
				t.Errorf("user %d: the caller received %v", i, got.Header)
			}
		}
	}

	slots := map[string]int{}
	for range 2 { // a user keeps its slot
		for i, user := range users {
			model := fmt.Sprint("n", i)
			g.Backend.On(model, echo)
			post(t, g, chat, user.Secret, model, "")
			seen := g.Backend.Seen(model)
			last := seen[len(seen)-1].Header
			slots[last.Get("Authorization")]++
			if seen[0].Header.Get("Authorization") != last.Get("Authorization") {
				t.Errorf("user %d: the backend received %v", i, last)
			}
		}
	}
	for _, secret := range secrets {
		if slots["Bearer "+secret] == 0 {
			t.Errorf("the keys were used %v times", slots)
		}
		if g.Logged(secret) {
			t.Errorf("the log has the key %s", secret)
		}
	}
}
