package caddymodule_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestTheFilterOfTheExampleKeepsCredentialsOutOfAddresses: Caddy has one filter
// for a field, so that links and parameters are kept out by the same.
func TestTheFilterOfTheExampleKeepsCredentialsOutOfAddresses(t *testing.T) {
	t.Parallel()
	_, stdout, stderr := gatetest.Caddy(t, "", "adapt", "--config", "../Caddyfile.example")
	var config struct {
		Logging struct {
			Logs map[string]struct {
				Encoder struct {
					Fields map[string]struct {
						Operations []struct{ Regexp, Value string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &config); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	operations := config.Logging.Logs["default"].Encoder.Fields["request>uri"].Operations
	for uri, want := range map[string]string{
		"/v1/files/abcdefghijklmnopqrstuvwxyz/boat.mp4":     "/v1/files/REDACTED/boat.mp4",
		"/v1/files/abcdefghijklmnopqrstuvwxyz/boat.mp4?a=b": "/v1/files/REDACTED/boat.mp4?a=b",
		"/v1/files/abcdefghijklmnopqrstuvwxyz?key=x":        "/v1/files/REDACTED?key=REDACTED",
		"/v1/messages?api_key=sk-1&a=b&token=2":             "/v1/messages?api_key=REDACTED&a=b&token=REDACTED",
		"/api/pay/notify?money=1&sign=x&sign_type=MD5":      "/api/pay/notify?money=1&sign=REDACTED&sign_type=MD5",
		"/v1/platform/tasks?limit=5":                        "/v1/platform/tasks?limit=5",
	} {
		got := uri
		for _, operation := range operations {
			got = regexp.MustCompile(operation.Regexp).ReplaceAllString(got, operation.Value)
		}
		if got != want {
			t.Errorf("%s is logged as %s, want %s", uri, got, want)
		}
	}
}
