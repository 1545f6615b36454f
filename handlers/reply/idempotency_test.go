package reply

import (
	"net/http"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given   []string
		want    string
		refused bool
	}{
		"none":          {nil, "", false},
		"one":           {[]string{"k-1"}, "k-1", false},
		"twice":         {[]string{"k-1", "k-1"}, "k-1", false},
		"two":           {[]string{"k-1", "k-2"}, "", true},
		"empty":         {[]string{""}, "", true},
		"one and empty": {[]string{"k-1", ""}, "", true},
	} {
		header := http.Header{"X": {"other"}}
		if c.given != nil {
			header["Idempotency-Key"] = c.given
		}
		key, f := IdempotencyKey(header)
		if key != c.want || (f != nil) != c.refused || f != nil && (f.Code != fault.InvalidParameter || f.Param != "Idempotency-Key") {
			t.Errorf("%s: %q, %v", name, key, f)
		}
	}
}
