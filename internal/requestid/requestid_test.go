package requestid_test

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

func TestRequestIDsAreUnique(t *testing.T) {
	t.Parallel()
	a, b := requestid.New(), requestid.New()
	if a == b || len(a) != len("req_")+26 || !strings.HasPrefix(a, "req_") {
		t.Errorf("%s, %s", a, b)
	}
}

func TestARequestIDHasItsTime(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{time.UnixMilli(0), time.UnixMilli(1795161600123), time.UnixMilli(1<<45 - 1)} {
		if got, ok := requestid.Time(requestid.At(at)); !ok || !got.Equal(at) {
			t.Errorf("the id of %v has the time %v, %v", at, got, ok)
		}
	}
	id := requestid.New()
	for _, other := range []string{"", "req_", id[4:], id + "A", id[:29], "req_" + strings.Repeat("1", 26), "task" + id[4:], strings.ToLower(id)} {
		if _, ok := requestid.Time(other); ok {
			t.Errorf("%q is accepted as an id", other)
		}
	}
}
