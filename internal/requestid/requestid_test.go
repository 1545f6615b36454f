package requestid_test

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

func TestRequestIDsAreLongAndNeverTheSame(t *testing.T) {
	t.Parallel()
	a, b := requestid.New(), requestid.New()
	if a == b || len(a) != len("req_")+26 || !strings.HasPrefix(a, "req_") {
		t.Errorf("%s, %s", a, b)
	}
}
