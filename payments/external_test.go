package payments_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// external is a third-party module with a payment service and a backend. It
// uses every type of the interfaces and every field that such a module sets.
const external = `package external

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/wire"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/settings"
	"github.com/caddy-modelgate/modelgate/storage"
)

type service struct{ Key settings.Secret }

func (s service) Checkout(_ context.Context, o payments.Order) (payments.Page, error) {
	var amount money.Amount = o.Amount
	if amount < money.Unit {
		return payments.Page{}, payments.ErrAmount
	}
	return payments.Page{URL: "https://pay.example/" + o.TradeNo + "?amount=" + amount.String()}, nil
}

func (s service) Read(w payments.Webhook) (payments.Notice, error) {
	amount, err := money.Parse(w.Query.Get("amount"))
	return payments.Notice{Kind: payments.Paid, Amount: amount}, errors.Join(err)
}

func (s service) Acknowledgement() (body, contentType string) { return "ok", "text/plain" }
func (s service) CheckCurrency(string) error                  { return nil }
func (s service) Methods() []string                           { return []string{http.MethodPost} }

type backend struct{}

func (backend) Submit(context.Context, backends.Job) (backends.Ref, error) {
	return backends.Ref{ID: "1"}, nil
}

func (backend) Poll(context.Context, backends.Ref) (backends.Status, error) {
	return backends.Status{State: backends.Running, Cost: backends.Cost{Amount: "1", Unit: "credits"}}, nil
}

type opener struct{}

func (opener) Key() string                                          { return "external" }
func (opener) Open(context.Context) (storage.Engine, error)         { return nil, errors.ErrUnsupported }
func (opener) KeyFile() string                                      { return "/var/lib/external.key" }
func (opener) MediaDir() (path string, minFree int64)               { return "/var/lib/external", 0 }

var (
	_ payments.Provider  = service{}
	_ payments.CurrencyChecker = service{}
	_ backends.Backend   = backend{}
	_ storage.Opener     = opener{}
	_ storage.KeyFiler   = opener{}
	_ storage.MediaDirer = opener{}
	_ *wire.Client
)
`

// TestOtherModulesCanImplementServices compiles that module outside this repository, where Go refuses
// imports of internal packages.
func TestOtherModulesCanImplementServices(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	const name = "github.com/caddy-modelgate/modelgate"
	mod := strings.Replace(string(own), "module "+name, "module example.com/external", 1) +
		"\nrequire " + name + " v0.0.0\n\nreplace " + name + " => " + root + "\n"
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{"go.mod": []byte(mod), "go.sum": sums, "external.go": []byte(external)} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
