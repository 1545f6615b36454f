package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// pagesCaddyfile is the console with its pages, compressed as a site serves
// them to browsers.
var pagesCaddyfile = template.Must(template.New("pages").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	storage file_system "{{.Dir}}/caddy"
	modelgate {
		base_url http://{{.Address}}
		storage badger "{{.Dir}}/store"
	}
}

http://{{.Address}} {
	encode gzip
	modelgate_console {
		reads_per_minute 1000000
	}
}
`))

// historySeed is the order of the role that fills a store with the history of
// one user.
type historySeed struct{ Calls, Tasks, Orders int }

// withHistory returns a console whose one user has a tenth as many tasks as
// calls, and a hundredth as many orders.
func withHistory(calls int64) side {
	return side{
		name: fmt.Sprintf("history-%d", calls), caddyfile: pagesCaddyfile, reads: selfPath,
		history: historySeed{Calls: int(calls), Tasks: int(calls / 10), Orders: int(calls / 100)},
	}
}

// seedHistory gives a site the store of a gateway whose one user has a history.
func (b *bench) seedHistory(ctx context.Context, s *site) error {
	return b.fill(ctx, s, roleSeedHistory, s.history, &s.keys)
}

// fill creates the user, the history and a session, and returns its secret.
func (h historySeed) fill(ctx context.Context, b *testStore) (secrets []string, err error) {
	people := sessionSeed{Users: 1, Sessions: 1, Epoch: 1} // a new role ends the sessions
	users, err := people.createUsers(ctx, b.store)
	if err != nil {
		return nil, err
	}
	if err := b.creditEach(ctx, "wallets", 1, users, 1_000_000*money.Unit); err != nil {
		return nil, err
	}
	directory, err := identity.Open(ctx, b.store, nil, discardLogger())
	if err != nil {
		return nil, err
	}
	key, _, err := directory.CreateKey(ctx, "operator", users[0], identity.KeySpec{Name: "bench"})
	if err != nil {
		return nil, err
	}
	for _, fill := range []func(context.Context, *testStore, string, string) error{h.makeCalls, h.makeTasks} {
		if err := fill(ctx, b, users[0], key.ID); err != nil {
			return nil, err
		}
	}
	if err := h.makeOrders(ctx, b, directory, users[0]); err != nil {
		return nil, err
	}
	if err := makeAdministrator(ctx, b, directory, users[0]); err != nil {
		return nil, err
	}
	return people.openSessions(ctx, b.store, users)
}

// makeAdministrator gives a user the role that sees all pages of the administration, and the second
// factor that it needs: a passkey that no device has. The pages are only read.
func makeAdministrator(ctx context.Context, b *testStore, directory *identity.Directory, user string) error {
	if _, err := directory.SetRole(ctx, "operator", user, identity.Admin); err != nil {
		return err
	}
	return b.store.Update(ctx, func(t storage.Txn) error {
		return factor.PasskeyTable.Put(t, nil, &factor.PasskeyRecord{UserID: user, Passkey: factor.Passkey{ID: "psk_bench", Name: "bench"}, CredentialID: []byte("bench")})
	})
}

// makeCalls settles calls that are spread over the days before.
func (h historySeed) makeCalls(ctx context.Context, b *testStore, user, key string) error {
	const cost = 3_388_200
	for n := range h.Calls {
		r, err := b.ledger.Reserve(ctx, ledger.Payer{User: user}, 5*cost)
		if err != nil {
			return err
		}
		at := b.store.Now().Add(time.Duration(n-h.Calls) * (seededDays * 24 * time.Hour / time.Duration(h.Calls)))
		r.Settle(journal.Call{
			ID: requestid.At(at), Time: at.UnixMilli(), User: user, Key: key,
			Model: model, Route: "messages", Status: 200, Ended: usage.Complete, Usage: usage.Reported,
			Tokens: usage.Tokens{Input: 212, Output: 163, CacheRead: 1024}, Cost: cost, FirstByte: 640, Duration: 2210,
		}, cost, true)
	}
	return nil
}

// finishingBackend is a backend whose jobs are complete when they are polled
// first.
type finishingBackend struct{ acceptingBackend }

func (finishingBackend) Poll(context.Context, backends.Ref) (backends.Status, error) {
	return backends.Status{State: backends.Succeeded, Results: []backends.Result{{URL: videoURL, Type: "video"}}}, nil
}

// makeTasks submits tasks and waits until they have succeeded.
func (h historySeed) makeTasks(ctx context.Context, b *testStore, user, key string) error {
	engine := task.Open(b.store, b.ledger, task.Options{Logger: discardLogger()})
	defer engine.Close(ctx)
	fast := task.Backend{Name: serviceName, Backend: finishingBackend{}, PollsPerSecond: unbounded}
	if err := engine.Serve(task.Config{Unfinished: unbounded, Backends: []task.Backend{fast}}); err != nil {
		return err
	}
	c := &workers{concurrency: 64, do: func(int64) error {
		s := submission(user)
		s.Key = key
		_, _, err := engine.Submit(ctx, s)
		return err
	}}
	if err := c.doTimes(int64(h.Tasks)); err != nil {
		return err
	}
	for {
		unfinished, _, err := engine.Unfinished(ctx, task.OfUser(user), 1)
		if err != nil || len(unfinished) == 0 {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// payingProvider is a payment service that opens each payment at once.
type payingProvider struct{ payments.Provider }

func (payingProvider) Checkout(_ context.Context, o payments.Order) (payments.Page, error) {
	return payments.Page{URL: "https://pay.example.com/" + o.TradeNo, Reference: o.TradeNo}, nil
}

// makeOrders opens orders and pays them.
func (h historySeed) makeOrders(ctx context.Context, b *testStore, directory *identity.Directory, user string) error {
	service := billing.NewService(b.store, b.ledger, directory, discardLogger())
	nowhere := func(string) string { return "https://ai.example.com/" }
	for n := range h.Orders {
		order, _, err := service.OpenOrder(ctx, billing.OrderRequest{
			User: user, Provider: "bench", Amount: money.Unit, Min: 1, Max: money.Unit, Currency: "USD",
			URLs: billing.URLs{Notify: nowhere, Return: nowhere},
		}, payingProvider{})
		if err != nil {
			return err
		}
		paid, err := service.Apply(ctx, "bench", payments.Notice{
			Kind: payments.Paid, Event: strconv.Itoa(n), TradeNo: order.TradeNo, Payment: order.TradeNo, Amount: money.Unit, Currency: "USD",
		})
		if err != nil {
			return err
		}
		if paid.Result != billing.Applied {
			return fmt.Errorf("the payment of an order is %s: %s", paid.Result, paid.Reason)
		}
	}
	return nil
}

// browsing is the trial of a browser that reads each page of the console and of
// its administration, of a user with few calls and of one with many.
type browsing struct{ few, many int64 }

// pair implements trial.
func (v browsing) pair(ctx context.Context, b *bench, _ string) (p pair, err error) {
	for n, calls := range [2]int64{v.few, v.many} {
		s, err := b.prepare(ctx, withHistory(calls))
		if err != nil {
			return p, err
		}
		if p[n], err = b.browse(ctx, s); err != nil {
			return p, err
		}
	}
	return p, nil
}

// consoleRoot is the path of the pages.
const consoleRoot = "/console"

var (
	links = regexp.MustCompile(`(?:href|src)="(` + consoleRoot + `[^"#]*)"`)
	ids   = regexp.MustCompile(`/[A-Za-z]*_?[A-Za-z0-9]{16,}|/\d+`)
)

// browse reads each kind of page that links lead to, beginning with the
// overview, and records the slowest median time of a page and the greatest size
// of a page with its assets.
func (b *bench) browse(ctx context.Context, s *site) (p sample, err error) {
	g, err := b.start(ctx, s)
	if err != nil {
		return p, err
	}
	defer g.stop()
	browser := visitor{gateway: g, session: s.keys[0], times: max(b.turns.Rounds, 3), sizes: make(map[string]int64)}
	seen, slowest := make(map[string]bool), ""
	for queue := []string{consoleRoot}; len(queue) > 0; queue = queue[1:] {
		path, _, _ := strings.Cut(queue[0], "?")
		kind := ids.ReplaceAllString(path, "/*")
		if seen[kind] || strings.HasPrefix(path, consoleRoot+"/assets/") || path == consoleRoot+"/download" { // a file is no page
			continue
		}
		seen[kind] = true
		v, err := browser.view(ctx, queue[0])
		if err != nil {
			return p, err
		}
		p.Units++
		if p.Weight = max(p.Weight, v.weight); v.median > p.P50 {
			p.P50, slowest = v.median, path
		}
		queue = append(queue, v.links...)
	}
	fmt.Fprintf(os.Stderr, "%s: of %d pages the slowest is %s, %v\n", s.name, p.Units, slowest, p.P50)
	if p.Units < 40 {
		return p, fmt.Errorf("the pages link to %d others only", p.Units)
	}
	return p, nil
}

// visitor is a browser with a session.
type visitor struct {
	gateway *gateway
	session string
	times   int              // how often a page is read
	sizes   map[string]int64 // of assets that have been read
}

// viewed is what a visitor knows of a page.
type viewed struct {
	median time.Duration // from the request to the end of the answer
	weight int64         // bytes of the page and its assets, compressed
	links  []string
}

// view reads a page some times, and its assets.
func (v *visitor) view(ctx context.Context, path string) (page viewed, err error) {
	var took []time.Duration
	var text []byte
	for range v.times {
		began := time.Now()
		if text, page.weight, err = v.read(ctx, path); err != nil {
			return page, err
		}
		took = append(took, time.Since(began))
	}
	page.median, _ = percentiles(took)
	for _, found := range links.FindAllSubmatch(text, -1) {
		link := strings.ReplaceAll(string(found[1]), "&amp;", "&")
		if slices.Contains(page.links, link) {
			continue
		}
		page.links = append(page.links, link)
		if !strings.HasPrefix(link, consoleRoot+"/assets/") {
			continue
		}
		if v.sizes[link] == 0 {
			if _, v.sizes[link], err = v.read(ctx, link); err != nil {
				return page, err
			}
		}
		page.weight += v.sizes[link]
	}
	return page, nil
}

// read returns what is at a path, and its size on the wire.
func (v *visitor) read(ctx context.Context, path string) (text []byte, size int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+v.gateway.address+path, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Accept", "text/html")
	req.Header.Set("Accept-Encoding", "gzip")
	req.Header.Set("Cookie", "modelgate_session="+v.session)
	req.Header.Set("User-Agent", browserName)
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	counted := &countingReader{in: resp.Body}
	body := io.Reader(counted)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(counted); err != nil {
			return nil, 0, err
		}
	}
	text, err = io.ReadAll(body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(path + ": " + resp.Status)
	}
	return text, counted.n, err
}

// countingReader counts the bytes that are read.
type countingReader struct {
	in io.Reader
	n  int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}
