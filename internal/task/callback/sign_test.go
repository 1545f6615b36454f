package callback

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"
)

// TestSignatureMatchesStandardWebhooks checks the example of the specification of Standard
// Webhooks.
func TestSignatureMatchesStandardWebhooks(t *testing.T) {
	t.Parallel()
	secret, _ := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	header := make(http.Header)
	err := sign(header, [][]byte{secret}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if err != nil || header.Get("webhook-signature") != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" ||
		header.Get("webhook-timestamp") != "1614265330" || header.Get("webhook-id") != "msg_p5jXN8AQM9LWM0D4loKWxJek" {
		t.Errorf("%v, %v", header, err)
	}
}

func TestEmptySecretsAreRefused(t *testing.T) {
	t.Parallel()
	for name, secrets := range map[string][][]byte{"none": nil, "an empty secret": {{}}, "a secret and an empty one": {[]byte("x"), nil}} {
		header := make(http.Header)
		if err := sign(header, secrets, "id", time.Now(), nil); err == nil || len(header) != 0 {
			t.Errorf("%s: signed %v", name, header)
		}
	}
}
