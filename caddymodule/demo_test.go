package caddymodule_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/caddymodule"
)

func TestTheDemoListensWhereItIsToldAlone(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:8080", "[::1]:8080", "192.0.2.1:8080"} {
		adapted, err := caddymodule.AdaptDemo(address, "127.0.0.1:2020", t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Apps struct {
				HTTP struct {
					Servers map[string]struct {
						Listen []string `json:"listen"`
					} `json:"servers"`
				} `json:"http"`
			} `json:"apps"`
		}
		if err := json.Unmarshal(adapted, &config); err != nil {
			t.Fatal(err)
		}
		if len(config.Apps.HTTP.Servers) != 1 {
			t.Fatalf("%s: it has %d servers", address, len(config.Apps.HTTP.Servers))
		}
		for _, server := range config.Apps.HTTP.Servers {
			if !slices.Equal(server.Listen, []string{address}) {
				t.Errorf("%s: it listens at %q", address, server.Listen)
			}
		}
	}
}
