package console_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// notified has two backends that send notices: one with a secret that verifies them,
// and one without.
const notified = `
	backend proved {
		models video-proved
		adapter platform {
			url http://BACKEND
			key sk-of-the-service
			callback_secret whsec_aHVzaGh1c2hodXNoaHVzaA==
		}
	}
	backend unsigned {
		models video-unsigned
		adapter platform {
			url http://BACKEND
			key sk-of-the-service
		}
	}
	price video-* {
		second 0.10
	}
	media off
`

// forgedHeaders returns the headers of a notice of now with an invalid signature. Checking it needs the body.
func forgedHeaders(g *gatetest.Gate) string {
	return fmt.Sprintf("Webhook-Id: msg_1\nWebhook-Timestamp: %d\nWebhook-Signature: v1,%s\n",
		g.Now().Unix(), base64.StdEncoding.EncodeToString(make([]byte, 32)))
}

// attacked starts a gate with every route to which unauthenticated callers can send bodies,
// and a user who logs in.
func attacked(t *testing.T) *gatetest.Gate {
	t.Helper()
	g := gatetest.Start(t, gatetest.Config{
		Global: "servers {\n trusted_proxies static 127.0.0.1/32\n }",
		App:    signing + notified, Site: doors,
	})
	got := g.Do(t, "POST", "/api/user/register", "Content-Type: application/json", `{"username":"victim","password":"`+password+`"}`)
	if got.Status != http.StatusOK {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	return g
}

// occupy sends count bodies of size bytes without their last byte, from each of the
// addresses 127.0.<net>.1, 127.0.<net>.2 and so on.
func occupy(t *testing.T, g *gatetest.Gate, path, headers string, net, addresses, count, size int) {
	t.Helper()
	body := strings.Repeat(" ", size-1)
	for i := range addresses {
		for range count {
			conn := g.DialFrom(t, fmt.Sprintf("127.0.%d.%d", net, i+1))
			conn.Send(t, fmt.Sprintf("POST %s HTTP/1.1\nHost: gate\nContent-Length: %d\n%s\n", path, size, headers))
			_, _ = conn.Write([]byte(body)) // the gate closes the connections of refused bodies
		}
	}
}

// fill occupies a budget with bodies of size bytes, as many from each address as its share
// allows. Then it adds small bodies until no further one fits.
func fill(t *testing.T, g *gatetest.Gate, b *bodymem.Budget, limits bodymem.Limits, path, headers string, size int) {
	t.Helper()
	const smallest = 4 << 10
	each := int(limits.Share) / size
	occupy(t, g, path, headers, 1, int(limits.Total)/size/each+1, each, size)
	net := 1
	gatetest.Eventually(t, "that the budget is full", func() (used int64, ok bool) {
		if used = b.Used(); used <= limits.Total-smallest {
			net++
			occupy(t, g, path, headers, net, 1, 32, smallest-1)
		}
		return used, used > limits.Total-smallest
	})
}

// served checks that people log in and payments are credited.
func served(t *testing.T, g *gatetest.Gate, during string) {
	t.Helper()
	for i := range 5 {
		got := g.Do(t, "POST", "/api/user/login", "Content-Type: application/json", `{"username":"victim","password":"`+password+`"}`)
		if got.Status != http.StatusOK {
			t.Errorf("%s, a log-in is answered %d %s", during, got.Status, got.Body)
		}
		id := fmt.Sprintf("evt_%s_%d", strings.ReplaceAll(during, " ", "_"), i)
		body := paidNotice(id, "none", "1.00", "USD")
		if got = g.Do(t, "POST", hook, signed(id, body, g.Now()), body); got.Status != http.StatusOK {
			t.Errorf("%s, a webhook is answered %d %s", during, got.Status, got.Body)
		}
	}
}

func TestANoticeThatCannotBeProvedIsRefusedUnread(t *testing.T) {
	g := attacked(t)
	forged := forgedHeaders(g)
	for name, c := range map[string]struct {
		path, headers string
		status        int
	}{
		"without a secret":        {"/v1/notices/unsigned", forged, 404},
		"to a backend of no name": {"/v1/notices/nobody", forged, 404},
		"without a signature":     {"/v1/notices/proved", "", 403},
		"with a broken signature": {"/v1/notices/proved", strings.Replace(forged, "AAA=", "", 1), 403},
		"signed at another time":  {"/v1/notices/proved", strings.Replace(forged, "Timestamp: ", "Timestamp: 1", 1), 403},
		"with plausible headers":  {"/v1/notices/proved", forged, 100},
	} {
		_, answer := waits(t, g, c.path, c.headers)
		if answer.Status != c.status {
			t.Errorf("%s: answered %d %s", name, answer.Status, answer.Body)
		}
	}
}

func TestSlowNoticesShutOutNoLogInsAndNoWebhooks(t *testing.T) {
	g := attacked(t)
	forged := forgedHeaders(g)
	occupy(t, g, "/v1/notices/proved", forged, 0, 2, 20, 1<<20)
	served(t, g, "beside notices of two addresses")
	fill(t, g, &gatetest.Runtime(t).Bodies.Notices, caddymodule.NoticeBodies, "/v1/notices/proved", forged, 1<<20)
	served(t, g, "beside notices of many addresses")
}

func TestSlowWebhooksShutOutNoGenuineOnes(t *testing.T) {
	g := attacked(t)
	fill(t, g, &gatetest.Runtime(t).Bodies.Webhooks, caddymodule.WebhookBodies, hook, "", 64<<10)
	g.Wait(time.Minute) // real bodies arrive at once, these do not
	served(t, g, "beside slow webhooks")
}

func TestSlowLogInsShutOutNoOthers(t *testing.T) {
	g := attacked(t)
	fill(t, g, &gatetest.Runtime(t).Bodies.LogIns, caddymodule.LogInBodies, "/api/user/login", "Content-Type: application/json\n", 64<<10)
	g.Wait(time.Minute)
	served(t, g, "beside slow log-ins")
}

func TestAddressesOfOneIPv6NetworkHaveOneShare(t *testing.T) {
	g := attacked(t)
	body := strings.Repeat(" ", 64<<10-1)
	runtime := gatetest.Runtime(t)
	send := func(address string) *gatetest.Wire {
		conn := g.Dial(t)
		conn.Send(t, fmt.Sprintf("POST %s HTTP/1.1\nHost: gate\nX-Forwarded-For: %s\nContent-Length: %d\n\n", hook, address, len(body)+1))
		_, _ = conn.Write([]byte(body))
		return conn
	}
	const fit = 16 // bodies of 64 KiB in 1 MiB
	for i := range fit {
		send(fmt.Sprintf("2001:db8:1:2:%x::1", i))
		gatetest.Eventually(t, "that its memory is taken", func() (used int64, ok bool) {
			used = runtime.Bodies.Webhooks.Used()
			return used, used == int64(i+1)*(64<<10)
		})
	}
	answer := send("2001:db8:1:2:ffff::1").Receive(t, "POST")
	refused(t, "one more of the network", answer, 429, "RATE_LIMITED")
	if !strings.Contains(answer.Body, "memory") || answer.Header.Get("Retry-After") == "" {
		t.Errorf("answered %v %s", answer.Header, answer.Body)
	}
	other := send("2001:db8:1:3::1")
	other.Send(t, " ")
	refused(t, "one of another network", other.Receive(t, "POST"), 400, "INVALID_PARAMETER")
}
