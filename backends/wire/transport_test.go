package wire

import "testing"

// TestTransportsKeepTheCredentialAtItsService: what a proxy of the environment
// is, and whether Go sends again by itself, depends on neither address nor
// method here.
func TestTransportsKeepTheCredentialAtItsService(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{true, false} {
		made := transport(once)
		if made.Proxy != nil {
			t.Error("a proxy of the environment is used")
		}
		if made.DisableKeepAlives != once {
			t.Errorf("connections are kept: %t", !made.DisableKeepAlives)
		}
	}
}
