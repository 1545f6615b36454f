package console

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// clocked is an answer whose connection remembers its deadline.
type clocked struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (c *clocked) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// trickle sends one byte whenever it is asked, until the deadline of its
// connection is near.
type trickle struct{ w *clocked }

func (s trickle) Read(p []byte) (int, error) {
	if s.w.deadline.IsZero() {
		return 0, errors.New("a body is read without a deadline")
	}
	return 0, os.ErrDeadlineExceeded
}

func visitWith(body io.Reader) (*visit, *clocked) {
	app := &caddymodule.App{Limits: caddymodule.Limits{BodyMemory: 100}}
	w := &clocked{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.ContentLength = -1
	r.Header.Set("Content-Type", "application/json")
	return &visit{console: &Console{app: app}, node: new(caddymodule.Node), w: w, r: r}, w
}

func TestABodyHasToArriveWithinHalfAMinute(t *testing.T) {
	t.Parallel()
	v, w := visitWith(nil)
	v.r.Body = io.NopCloser(trickle{w})
	before := time.Now()
	f := v.readBody(jsonBody)
	if f == nil || f.Code != fault.RequestTimeout {
		t.Errorf("answered %v", f)
	}
	if patience := w.deadline.Sub(before); patience < 29*time.Second || patience > 31*time.Second {
		t.Errorf("the deadline is %v away", patience)
	}
}

func TestABodyThatHasArrivedHasNoDeadlineAndIsLeftInTheRequest(t *testing.T) {
	t.Parallel()
	v, w := visitWith(strings.NewReader(`{}`))
	if f := v.readBody(jsonBody); f != nil || string(v.body) != `{}` || !w.deadline.IsZero() {
		t.Errorf("%v, %q, deadline %v", f, v.body, w.deadline)
	}
	if again, err := io.ReadAll(v.r.Body); err != nil || string(again) != `{}` {
		t.Errorf("read again: %q, %v", again, err)
	}
}

func TestBodiesTogetherTakeNoMoreMemoryThanTheyMay(t *testing.T) {
	t.Parallel()
	first, _ := visitWith(strings.NewReader(strings.Repeat(" ", 60)))
	second, _ := visitWith(strings.NewReader(strings.Repeat(" ", 60)))
	second.node = first.node
	if f := first.readBody(jsonBody); f != nil {
		t.Fatal(f)
	}
	if f := second.readBody(jsonBody); f == nil || f.Code != fault.Overloaded {
		t.Errorf("answered %v", f)
	}
	first.node.ReserveBody(-first.taken, 0)
	first.node.ReserveBody(-second.taken, 0)
	if !first.node.ReserveBody(100, 100) {
		t.Error("what was taken has not been given back")
	}
}
