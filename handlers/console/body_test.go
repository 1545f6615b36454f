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
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// clocked is a ResponseWriter that records the deadline of its connection.
type clocked struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (c *clocked) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// trickle is a body that returns one byte per read, until shortly before the deadline of
// its connection.
type trickle struct{ w *clocked }

func (s trickle) Read(p []byte) (int, error) {
	if s.w.deadline.IsZero() {
		return 0, errors.New("a body is read without a deadline")
	}
	return 0, os.ErrDeadlineExceeded
}

// requestWith returns a request of a user with a body.
func requestWith(body io.Reader) (*request, *clocked) {
	app := &caddymodule.App{Limits: caddymodule.Limits{BodyMemory: 64 << 20}}
	w := &clocked{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.ContentLength = -1
	r.Header.Set("Content-Type", "application/json")
	account := &identity.Account{UserID: "usr_1"}
	return &request{console: &Console{app: app}, account: account, runtime: new(caddymodule.Runtime), w: w, r: r}, w
}

func TestABodyHasToArriveInTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		anonymous bool
		takes     intake
		want      time.Duration
	}{
		"of a customer":          {false, jsonBody, 30 * time.Second},
		"of a payment service":   {true, notice, 5 * time.Second},
		"of the form of a payer": {true, form, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, w := requestWith(nil)
			req.r.Body = io.NopCloser(trickle{w})
			req.r.Header.Set("Content-Type", c.takes.media)
			if c.anonymous {
				req.account = nil
			}
			before := time.Now()
			f := req.readBody(&route{who: public, takes: c.takes})
			if f == nil || f.Code != fault.RequestTimeout {
				t.Errorf("answered %v", f)
			}
			if patience := w.deadline.Sub(before) - c.want; patience < -time.Second || patience > time.Second {
				t.Errorf("the deadline is %v away", w.deadline.Sub(before))
			}
		})
	}
}

func TestABodyThatHasArrivedHasNoDeadlineAndIsLeftInTheRequest(t *testing.T) {
	t.Parallel()
	req, w := requestWith(strings.NewReader(`{}`))
	if f := req.readBody(&route{who: user, takes: jsonBody}); f != nil || string(req.body) != `{}` || !w.deadline.IsZero() {
		t.Errorf("%v, %q, deadline %v", f, req.body, w.deadline)
	}
	if again, err := io.ReadAll(req.r.Body); err != nil || string(again) != `{}` {
		t.Errorf("read again: %q, %v", again, err)
	}
}

func TestTheCodingOfAnEncodedBodyIsNotRepeated(t *testing.T) {
	t.Parallel()
	req, _ := requestWith(strings.NewReader(`{}`))
	req.r.Header.Set("Content-Encoding", "words-of-a-caller")
	f := req.readBody(&route{who: user, takes: jsonBody})
	if f == nil || f.Code != fault.UnsupportedMediaType || strings.Contains(f.Message, "words-of-a-caller") {
		t.Errorf("answered %v", f)
	}
}
