package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// forbiddenListener listens at addresses of this machine that the gateway must
// not connect to. It counts connections.
type forbiddenListener struct {
	t        *testing.T
	port     string
	accepted atomic.Int64
}

func newForbiddenListener(t *testing.T) *forbiddenListener {
	t.Helper()
	p := &forbiddenListener{t: t}
	listener, err := net.Listen("tcp", ":0") // IPv4 and IPv6, if available
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	_, p.port, _ = net.SplitHostPort(listener.Addr().String())
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			conn.Close()
		}
	}()
	return p
}

// check checks that there was no connection.
func (p *forbiddenListener) check() {
	p.t.Helper()
	if n := p.accepted.Load(); n != 0 {
		p.t.Errorf("%d connections to the forbidden listener", n)
	}
}

// checkDetects checks that a connection is counted.
func (p *forbiddenListener) checkDetects() {
	p.t.Helper()
	before := p.accepted.Load()
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", p.port))
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Read(make([]byte, 1)) // until it is closed, which is after it was counted
	if p.accepted.Load() != before+1 {
		p.t.Error("the forbidden listener does not count connections")
	}
}

// spellings are hosts that resolve, or may resolve, to this machine.
var spellings = []string{
	"127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "2130706433", "017700000001", "0x7f000001", "0X7F.1", "0177.0.0.1", "0x7f.0.0.1", "127.0.0.1.",
	"0", "0.0.0.0", "00.0.0.0", "127.000.000.001",
	"[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "[::1%25lo]",
	"localhost", "LOCALHOST", "localhost.", "a.localhost", "localhost.localdomain", "ip6-localhost",
	"127。0。0。1", "①②⑦.0.0.1", "%31%32%37.0.0.1", "public.example@127.0.0.1",
}

// links returns URLs of the listener: the spellings, and this machine's
// addresses in its own networks.
func (p *forbiddenListener) links() (all []string) {
	hosts := slices.Clone(spellings)
	own, _ := net.InterfaceAddrs() // an error leaves only the spellings
	for _, one := range own {
		if network, is := one.(*net.IPNet); is && network.IP.IsPrivate() && network.IP.To4() != nil {
			hosts = append(hosts, network.IP.String())
		}
	}
	for _, host := range hosts {
		all = append(all, "http://"+host+":"+p.port+"/picture.png")
	}
	return all
}

// guardedSite is a site whose results and callbacks may go to these two
// addresses only.
func guardedSite(u *mockService, r *receiver) site {
	return generationSite(u, r, "media {\nallow "+u.address()+"\n}")
}

func TestNoInputConnectsToASpecialAddress(t *testing.T) {
	t.Parallel()
	p := newForbiddenListener(t)
	u := newMockService(t)
	r := newReceiver(t, u.checkpoints)
	g := newGateway(t, guardedSite(u, r), u.backend, r.backend)
	g.start()
	c := g.newGatewayUser("collector")
	c.credit("100.00")
	for _, link := range p.links() {
		for field, body := range map[string]map[string]any{
			"inputs[0].url":         {"inputs": []any{map[string]any{"url": link}}},
			"subject_inputs[0].url": {"subject_inputs": []any{map[string]any{"url": link, "id": "s", "name": "s"}}},
		} {
			for path, model := range map[string]string{"/v1/platform/video": film, "/v1/platform/image": picture} {
				if path == "/v1/platform/image" && field != "inputs[0].url" {
					continue
				}
				body["model"], body["prompt"] = model, "a boat"
				text, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				a := g.call(path, string(text), "Authorization", "Bearer "+c.key)
				if a.Status != http.StatusBadRequest || !strings.Contains(a.Body, "INVALID_PARAMETER") {
					t.Errorf("%s %q at %s: %d %s", field, link, path, a.Status, a.Body)
				}
			}
		}
	}
	if got := u.backend.requests(); len(got) > 0 {
		t.Errorf("the mock service got %s %s", got[0].Method, got[0].URI)
	}
	// A public URL is passed on to the service unchanged. The gateway does not
	// fetch it.
	a := g.call("/v1/platform/video", fmt.Sprintf(`{"model":%q,"prompt":"video-film-1 1","inputs":[{"url":"http://public.example:%s/a.png"}]}`, film, p.port), "Authorization", "Bearer "+c.key)
	if a.Status != http.StatusOK || len(u.submissions("video-film-1 1")) != 1 {
		t.Errorf("a public address: %d %s", a.Status, a.Body)
	}
	p.check()
	p.checkDetects()
}

// TestNoResultConnectsToASpecialAddress: a mock service returns results at the
// forbidden listener, and results that redirect there.
func TestNoResultConnectsToASpecialAddress(t *testing.T) {
	t.Parallel()
	p := newForbiddenListener(t)
	u := newMockService(t)
	links := p.links()
	direct := len(links)
	for i := range direct {
		links = append(links, fmt.Sprintf("%s/away/%d", u.url(), i))
	}
	u.links = func(prompt string) string {
		var n int
		if _, err := fmt.Sscanf(prompt, film+" %d", &n); err != nil {
			t.Errorf("the prompt %q: %v", prompt, err)
		}
		return links[n]
	}
	u.away = links[:direct]
	r := newReceiver(t, u.checkpoints)
	s := guardedSite(u, r)
	s.Log = "DEBUG"
	g := newGateway(t, s, u.backend, r.backend)
	g.start()
	c := g.newGatewayUser("collector")
	c.credit("100.00")
	inParallel(8, len(links), func(i int) {
		o := &generation{number: i, model: film}
		o.submit(c)
	})
	if !g.process.log.awaitCount("cannot copy the results of a task yet", len(links)) {
		t.Errorf("%d of %d copies were refused", strings.Count(g.process.log.String(), "cannot copy the results of a task yet"), len(links))
	}
	followed := map[string]bool{}
	for _, a := range u.backend.requests() {
		if strings.HasPrefix(a.URI, "/away/") {
			followed[a.URI] = true
		}
	}
	if len(followed) != direct {
		t.Errorf("%d of %d redirects were requested", len(followed), direct)
	}
	if all, _ := r.count(); all != 0 {
		t.Errorf("%d callbacks arrived for missing results", all)
	}
	p.check()
	p.checkDetects()
}

// TestNoCallbackConnectsToASpecialAddress: keys have callback URLs of the
// forbidden listener, and the receiver of all callbacks redirects there.
func TestNoCallbackConnectsToASpecialAddress(t *testing.T) {
	t.Parallel()
	p := newForbiddenListener(t)
	u := newMockService(t)
	r := newReceiver(t, u.checkpoints)
	links := p.links()
	var redirects atomic.Int64
	r.away = func() (int, string) {
		n := int(redirects.Add(1))
		statuses := []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}
		return statuses[n%len(statuses)], links[n%len(links)]
	}
	s := guardedSite(u, r)
	s.People = "registration open"
	g := newGateway(t, s, u.backend, r.backend)
	g.start()

	// The console allows about twenty attempts of a password.
	const each = 12
	unset := 0
	for links, name := links, 'a'; len(links) > 0; name++ {
		of := g.newPerson(string(name) + "-person")
		mine := links[:min(each, len(links))]
		links = links[len(mine):]
		unset += of.ordersTo(mine)
	}
	if unset != len(links) {
		t.Errorf("%d of %d special addresses are refused", unset, len(links))
	}
	if n := int(redirects.Load()); n < len(links) {
		t.Errorf("%d of %d callbacks were redirected", n, len(links))
	}
	p.check()
	p.checkDetects()
}

// ordersTo submits one task for each link with a key whose callbacks go to the
// receiver, and one with a key for each link. It waits until all callbacks were
// tried and none was delivered, and returns how many links are not valid URLs.
func (p *person) ordersTo(links []string) (unset int) {
	p.g.t.Helper()
	p.register()
	p.g.post("/modelgate/wallets/"+p.name+"/credit", map[string]any{"amount": "100.00", "reason": "a test"}, nil)
	placed := 0
	order := func(key issued) {
		o := &generation{number: placed, model: film}
		o.submit(&gatewayUser{g: p.g, name: p.name, key: key.Secret, http: p.http})
		placed++
	}
	plain := p.createKey("of the receiver")
	for _, link := range links {
		order(plain)
		a := p.mustSend(http.MethodPost, "/api/token/", map[string]string{"callback_url": link, "password": p.password})
		if a.Status == http.StatusBadRequest && a.Code == "INVALID_PARAMETER" {
			unset++
			continue
		}
		var key issued
		if err := json.Unmarshal(a.Data, &key); err != nil || key.Secret == "" {
			p.g.t.Fatalf("a key with the callback address %q: %d %s", link, a.Status, a.Text)
		}
		p.keepSecret(key.Secret)
		p.mustSucceed(http.MethodPost, "/api/token/"+key.ID+"/callback_secret", nil, nil)
		order(key)
	}
	for _, d := range p.g.triedCallbacks(p.name, placed) {
		if d.State != "undelivered" || d.Status != 0 && d.Status/100 != 3 || d.Status == 0 && d.Trouble != "the receiver cannot be reached" {
			p.g.t.Errorf("a callback to %s is %+v", d.URL, d)
		}
	}
	return unset
}

// triedCallback is a callback as operators see it.
type triedCallback struct {
	State    string `json:"state"`
	Attempts int    `json:"attempts"`
	Status   int    `json:"status"`
	Trouble  string `json:"trouble"`
	URL      string `json:"url"`
}

// triedCallbacks waits until n callbacks of a user were tried, and returns
// them.
func (g *gateway) triedCallbacks(user string, n int) (tried []triedCallback) {
	g.t.Helper()
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(leaseLength); ; <-tick.C {
		var list struct{ Items []triedCallback }
		g.mustGet("/modelgate/callbacks?limit=100&user="+user, &list)
		tried = slices.DeleteFunc(list.Items, func(d triedCallback) bool { return d.Attempts == 0 })
		if len(tried) >= n {
			return tried
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%d of %d callbacks were tried: %+v", len(tried), n, list.Items)
		}
	}
}
