package stripe

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

// stripeMock is the mock server that Stripe generates from its specification. It refuses parameters
// that the API does not have.
const stripeMock = "github.com/stripe/stripe-mock@v0.203.0"

// TestStripesMockAcceptsTheSession checks the parameters of Checkout against Stripe's specification.
// The mock is built outside this module, from the module cache or the module proxy.
func TestStripesMockAcceptsTheSession(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds stripe-mock")
	}
	s := provisioned(t, testKey, startMock(t))
	for _, currency := range []string{"USD", "KWD"} {
		page, err := s.Checkout(t.Context(), paymentstest.Order(currency))
		if err != nil || !strings.HasPrefix(page.URL, "https://checkout.stripe.com/") || !strings.HasPrefix(page.Reference, "cs_test_") {
			t.Errorf("%s: got %+v, %v", currency, page, err)
		}
	}

	params, err := s.session(paymentstest.Order("USD"))
	if err != nil {
		t.Fatal(err)
	}
	params.AddExtra("no_such_parameter", "1")
	if _, err := s.client.V1CheckoutSessions.Create(t.Context(), params); err == nil {
		t.Error("the mock accepts an unknown parameter, so this test checks nothing")
	}
}

// startMock builds and starts the mock and returns its address. It listens on
// unused ports of this machine.
func startMock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "install", stripeMock)
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod", "GOWORK=off")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("stripe-mock cannot be built here: %v\n%s", err, out)
	}
	mock := exec.CommandContext(t.Context(), filepath.Join(dir, "stripe-mock"),
		"-http-addr", "127.0.0.1:", "-https-addr", "127.0.0.1:")
	mock.WaitDelay = 10 * time.Second
	output, err := mock.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := mock.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = mock.Process.Kill()
		_ = mock.Wait()
	})
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if _, address, found := strings.Cut(lines.Text(), "Listening for HTTP at address: "); found {
			go func() {
				for lines.Scan() { // otherwise the mock blocks at a full pipe
				}
			}()
			return "http://" + address
		}
	}
	t.Fatalf("stripe-mock ended before it listened: %v", lines.Err())
	return ""
}
