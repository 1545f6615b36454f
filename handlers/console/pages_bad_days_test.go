package console_test

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	_ "github.com/caddy-modelgate/modelgate/storage/badger"
)

// customerLinks matches the links to pages of a customer.
var customerLinks = regexp.MustCompile(`href="(/console[^"#]*)"`)

// opens opens every page of a customer that the overview leads to, and returns the paths.
func (b *browser) opens(t *testing.T, texts ...string) (seen []string) {
	t.Helper()
	for queue := []string{"/console"}; len(queue) > 0; queue = queue[1:] {
		path, _, _ := strings.Cut(queue[0], "?")
		if slices.Contains(seen, path) || strings.Contains(path, "/assets/") || strings.HasSuffix(path, "/download") {
			continue
		}
		seen = append(seen, path)
		answer := b.page(t, unescape.Replace(queue[0]))
		shows(t, answer, 200, texts...)
		for _, found := range customerLinks.FindAllStringSubmatch(answer.Body, -1) {
			queue = append(queue, found[1])
		}
	}
	if len(seen) < 15 {
		t.Errorf("only these pages were opened: %q", seen)
	}
	return seen
}

// TestEveryPageOpensWhenTheDiskIsFull is about a user with an empty wallet and a revoked key, in front
// of a store that takes no changes.
func TestEveryPageOpensWhenTheDiskIsFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	config := func(minFree, registration string) gatetest.Config {
		return gatetest.Config{
			App:  strings.Replace(app, "registration open", "registration "+registration, 1),
			Site: site, Storage: fmt.Sprintf("badger %q {\nmemory small\nmin_free %s\n}", dir, minFree),
		}
	}
	g := gatetest.Start(t, config("17MiB", "open"))
	b := newBrowser(g)
	name := b.registers(t)
	g.MustAdmin(t, "POST", "/modelgate/wallets/"+name+"/credit", map[string]any{"amount": "1.00", "reason": "test"}, nil)
	b.does(t, "POST", "/api/subscription/wallet/pay", `{"plan_id":3,"idempotency_key":"a"}`)
	var key gatetest.Key
	g.MustAdmin(t, "POST", "/modelgate/keys", map[string]any{"user": name}, &key)
	g.MustAdmin(t, "POST", "/modelgate/keys/"+key.ID+"/revoke", nil, nil)

	before := b.opens(t)
	if err := g.Reload(config("1PiB", "closed")); err != nil {
		t.Fatal(err)
	}
	if during := b.opens(t, "Nothing can be changed at the moment"); !slices.Equal(during, before) {
		t.Errorf("with a full disk, the pages are %q, before %q", during, before)
	}
	refused := b.fills(t, "/console/keys/new", "key_create", map[string]string{"name": "typed before", "password": password})
	shows(t, refused, 503, "STORE_UNAVAILABLE", `value="typed before"`)
	shows(t, newBrowser(g).page(t, "/console/register"), 200, "Nothing can be changed at the moment")
}

// TestAnEndedPlanIsSaidWhereItMatters is about a user whose only plan has ended: with money in the
// wallet, without, and with a preference that leaves nothing to pay with.
func TestAnEndedPlanIsSaidWhereItMatters(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	g.Credit(t, name, "2.00")
	b.does(t, "POST", "/api/subscription/wallet/pay", `{"plan_id":3,"idempotency_key":"a"}`)
	key := b.makes(t, `"name":"laptop"`)
	const ended, refused = "The plan “Once” has ended", "are refused with the status 402"
	for _, path := range []string{"/console", "/console/wallet"} {
		if body := b.page(t, path).Body; strings.Contains(body, ended) || strings.Contains(body, refused) {
			t.Errorf("%s warns while the plan is running:\n%s", path, body)
		}
	}

	g.Wait(25 * time.Hour)
	b = entersBy(t, g, name)
	over := `href="/console/subscriptions/1"`
	for _, path := range []string{"/console", "/console/wallet"} {
		body := b.page(t, path).Body
		if !strings.Contains(body, ended) || !strings.Contains(body, over) || strings.Contains(body, refused) {
			t.Errorf("%s does not say that the plan has ended, and that the wallet pays:\n%s", path, body)
		}
	}
	shows(t, b.page(t, "/console/subscriptions"), 200, "Once", `<span class="tag">Ended</span>`)
	shows(t, b.page(t, "/console/subscriptions/1"), 200, `<span class="tag">Ended</span>`)

	leads(t, b.fills(t, "/console/wallet", "preference", map[string]string{"preference": "subscription_only"}), "/console/wallet?done=preference")
	if status := tries(t, g, key.Secret, "priced"); status != 402 {
		t.Errorf("a call that only a plan may pay for gets %d", status)
	}
	for _, path := range []string{"/console", "/console/wallet"} {
		shows(t, b.page(t, path), 200, "Only subscriptions may pay for calls, and none is running.", refused)
	}

	leads(t, b.fills(t, "/console/wallet", "preference", map[string]string{"preference": "wallet_only"}), "/console/wallet?done=preference")
	for range 4 {
		if status := tries(t, g, key.Secret, "priced"); status != 200 {
			t.Fatalf("a call that the wallet pays for gets %d", status)
		}
	}
	gatetest.Eventually(t, "the wallet is empty", func() (balance string, ok bool) {
		balance = read[struct{ Balance string }](t, b, "/api/user/self").Balance
		return balance, balance == "0.00"
	})
	for _, path := range []string{"/console", "/console/wallet"} {
		shows(t, b.page(t, path), 200, "Only the wallet may pay for calls, and it is empty.", refused)
	}
	b.fills(t, "/console/wallet", "preference", map[string]string{"preference": "subscription_first"})
	for _, path := range []string{"/console", "/console/wallet"} {
		shows(t, b.page(t, path), 200, "The wallet is empty, and no plan is running.", ended, refused)
	}
}

// TestABackendThatIsDownIsSaidToEveryone is about a model that nothing serves, and about a generation
// service that takes no tasks: for the customer and for the support.
func TestABackendThatIsDownIsSaidToEveryone(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	g := gatetest.Start(t, gatetest.Config{App: app + generating, Site: strings.ReplaceAll(doors, "BACKEND", gone.Listener.Addr().String())})
	b := newBrowser(g)
	name := b.registers(t)
	g.Credit(t, name, "5.00")
	support, _ := withRole(t, g, "support")

	status := tries(t, g, b.makes(t, `"name":"laptop"`).Secret, "priced")
	if status < 500 {
		t.Fatalf("a call of a backend that is down gets %d", status)
	}
	var calls page[struct {
		ID string `json:"request_id"`
	}]
	gatetest.Eventually(t, "the call is listed", func() (int, bool) {
		into(t, b.does(t, "GET", "/api/log/self", ""), &calls)
		return calls.Total, calls.Total == 1
	})
	shows(t, b.page(t, "/console/usage/"+calls.Items[0].ID), 200, fmt.Sprint(status), "The model failed or broke off.", "0.00 USD")
	shows(t, support.page(t, "/console/admin/calls/"+calls.Items[0].ID), 200, "The model failed or broke off.")

	task := b.submitsByPage(t, "image", "down") // one: if several are refused, they wait longer
	gatetest.Eventually(t, "the backend pauses", func() (string, bool) {
		body := support.page(t, "/console/admin").Body
		return body, strings.Contains(body, "1 of 1 not available")
	})
	shows(t, support.page(t, "/console/admin/backends"), 200, "Pausing")
	shows(t, b.page(t, "/console/tasks/"+task), 200, "Waiting for its turn", "as soon as the service that makes it has capacity")
	b.opens(t)

	g.Wait(25 * time.Hour)
	b = entersBy(t, g, name)
	b.untilShown(t, task, "failed")
	failed := b.page(t, "/console/tasks/"+task)
	shows(t, failed, 200, "The service was busy", "0.00 USD", "Failed tasks are not charged.")
	if strings.Contains(failed.Body, "secret-works") {
		t.Error("the customer sees the name of the backend")
	}
}
