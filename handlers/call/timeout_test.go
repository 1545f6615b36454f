package call

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// slowCaller is a ResponseWriter whose writes block for a while.
type slowCaller struct {
	header http.Header
	delay  time.Duration
}

func (c *slowCaller) Header() http.Header { return c.header }
func (c *slowCaller) WriteHeader(int)     {}
func (c *slowCaller) Write(p []byte) (int, error) {
	time.Sleep(c.delay)
	return len(p), nil
}

func TestASlowCallerIsNotASilentBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		c := &call{
			block: &block{app: &caddymodule.App{Limits: caddymodule.Limits{Idle: caddy.Duration(idle), FirstByte: caddy.Duration(time.Hour)}}},
			route: &route{Route: reply.Route{Dialect: dialect.Anthropic}},
		}
		c.ctx, c.cancel = context.WithCancelCause(t.Context())
		caller := &slowCaller{header: make(http.Header), delay: 3*idle + 500*time.Millisecond}
		a := newAnswer(caller, c)
		a.watch.start(a)
		defer a.watch.stop()
		a.mu.Lock()
		a.head, a.passed, a.status = true, true, http.StatusOK
		a.watch.headReceived(a)
		a.mu.Unlock()
		for range 3 {
			if _, err := a.Write([]byte("more")); err != nil || c.cause() != nil {
				t.Fatalf("while the caller reads slowly: %v, %v", err, c.cause())
			}
			time.Sleep(idle - time.Second) // the backend is slow as well
			if c.cause() != nil {
				t.Fatal("the time of the caller counts as time of the backend")
			}
		}
		time.Sleep(3 * time.Second)
		if !c.timedOut() {
			t.Error("the call continues although the backend is silent too long")
		}
	})
}
