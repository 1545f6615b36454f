package call

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule"
)

// returned is the ResponseWriter of a handler that may have returned. A real server has then
// released its writer, and using it ends the process.
type returned struct {
	http.ResponseWriter
	gone atomic.Bool
	late atomic.Bool
}

func (r *returned) SetReadDeadline(time.Time) error {
	if r.gone.Load() {
		r.late.Store(true)
	}
	return nil
}

// slow is a body whose read takes a given time.
type slow struct{ time.Duration }

func (s slow) Read([]byte) (int, error) {
	time.Sleep(s.Duration) // in the bubble's time
	return 0, io.EOF
}

func (slow) Close() error { return nil }

func TestNoReadDeadlineIsSetAfterTheHandlerReturned(t *testing.T) {
	t.Parallel()
	for range 500 { // timer and body end at the same instant, in either order
		synctest.Test(t, func(t *testing.T) {
			w := &returned{ResponseWriter: httptest.NewRecorder()}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/messages", slow{time.Second})
			r.ContentLength = -1
			b, refused := readBody(w, r, new(caddymodule.Runtime), "usr_1", 1<<20, &caddymodule.Limits{BodyRead: caddy.Duration(time.Second), BodyMemory: 1 << 30})
			w.gone.Store(true)
			synctest.Wait()
			if w.late.Load() {
				t.Fatal("the deadline was set after the handler had returned")
			}
			if refused == nil {
				b.retire()
			}
		})
	}
}
