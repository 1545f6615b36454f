package console_test

import (
	"fmt"
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

// TestEveryPageOpensWhenTheDiskIsFull is about a user with an empty wallet, a plan that has expired
// and a revoked key, in front of a store that takes no changes.
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
	g.Wait(49 * time.Hour)

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
