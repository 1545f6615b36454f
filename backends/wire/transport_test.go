package wire

import "testing"

// TestTransportsUseNoProxyAndDoNotRepeatRequests: the transports use no proxy of
// the environment, and Go does not repeat a request by itself.
func TestTransportsUseNoProxyAndDoNotRepeatRequests(t *testing.T) {
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
