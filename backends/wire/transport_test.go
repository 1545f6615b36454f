package wire

import "testing"

// TestTransportsUseNoProxyAndDoNotRepeatRequests checks that the transports ignore
// the proxies of the environment. Without keep-alives, Go does not repeat requests.
func TestTransportsUseNoProxyAndDoNotRepeatRequests(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{true, false} {
		got := transport(once)
		if got.Proxy != nil {
			t.Error("the transport uses a proxy of the environment")
		}
		if got.DisableKeepAlives != once {
			t.Errorf("DisableKeepAlives is %t, want %t", got.DisableKeepAlives, once)
		}
	}
}
