package reply

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestEncoding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given []string
		want  string
	}{
		"none":            {nil, ""},
		"empty":           {[]string{""}, ""},
		"identity":        {[]string{"Identity"}, ""},
		"one":             {[]string{"gzip"}, "gzip"},
		"one of several":  {[]string{"identity", "", "br"}, "br"},
		"two in one line": {[]string{"identity, gzip"}, "identity, gzip"},
	} {
		if got := Encoding(http.Header{"Content-Encoding": c.given, "X": {"gzip"}}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// clocked is a ResponseWriter that records the read deadline of its connection.
type clocked struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (c *clocked) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// TestReadBody reads bodies with a memory budget of 3 MiB.
func TestReadBody(t *testing.T) {
	t.Parallel()
	text := func(bytes int) io.Reader { return strings.NewReader(strings.Repeat("x", bytes)) }
	for name, c := range map[string]struct {
		body      io.Reader
		announced int64
		limit     int64
		code      fault.Code
		message   string
	}{
		"at the limit":              {text(64 << 10), -1, 64 << 10, "", ""},
		"above the limit":           {text(64<<10 + 1), -1, 64 << 10, fault.PayloadTooLarge, "larger than 64 KiB"},
		"announced above the limit": {iotest.ErrReader(errors.New("it is read")), 2<<20 + 1, 2 << 20, fault.PayloadTooLarge, "larger than 2 MiB"},
		"above request_body":        {http.MaxBytesReader(nil, io.NopCloser(text(100<<10)), 10<<10), -1, 2 << 20, fault.PayloadTooLarge, "larger than 10 KiB"},
		"above the memory budget":   {text(3 << 20), 3 << 20, 4 << 20, fault.Overloaded, "too many request bodies"},
		"slow":                      {iotest.ErrReader(os.ErrDeadlineExceeded), 10, 64 << 10, fault.RequestTimeout, "within 1m0s"},
		"incomplete":                {iotest.ErrReader(io.ErrUnexpectedEOF), 10, 64 << 10, fault.InvalidJSON, "ended early"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &clocked{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequest(http.MethodPost, "/", c.body)
			r.ContentLength = c.announced
			var budget bodymem.Budget
			var claim bodymem.Claim
			budget.Open(&claim, w, "usr_1", bodymem.Limits{Total: 3 << 20, Share: 8 << 20})
			defer func() {
				if claim.Release(); budget.Used() != 0 {
					t.Errorf("%d bytes are not released", budget.Used())
				}
			}()
			body, f := ReadBody(w, r, c.limit, time.Minute, &claim)
			if c.code != "" {
				if f == nil || f.Code != c.code || !strings.Contains(f.Message, c.message) {
					t.Errorf("answered %v", f)
				}
				return
			}
			if f != nil || int64(len(body)) != c.limit || budget.Used() != int64(cap(body)) || !w.deadline.IsZero() {
				t.Errorf("%v, %d bytes, %d reserved for a capacity of %d, deadline %v", f, len(body), budget.Used(), cap(body), w.deadline)
			}
		})
	}
}
