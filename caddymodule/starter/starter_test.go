package starter_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-modelgate/modelgate/caddymodule/doctor"
	"github.com/caddy-modelgate/modelgate/caddymodule/starter"
	_ "github.com/caddy-modelgate/modelgate/internal/gatetest" // a build with all modules
)

// TestEveryChoiceMakesAValidConfiguration adapts and provisions the configuration of every
// choice with its environment, and checks it with the doctor.
func TestEveryChoiceMakesAValidConfiguration(t *testing.T) {
	for n := 1; n < 1<<5; n++ {
		for _, domain := range []string{"ai.example.com", "http://localhost:8080", "http://[::1]:8080", "http://x.localhost:8080", "https://ai.example.com:8443"} {
			choice := starter.Choice{Domain: domain, Data: filepath.Join(t.TempDir(), "a store"), Anthropic: n&1 != 0, OpenAI: n&2 != 0}
			if n&4 != 0 {
				choice.VLLM = starter.Server{Address: "10.0.0.5:8000", Models: []string{"Qwen/Qwen3-32B", "phi4"}}
			}
			if n&8 != 0 {
				choice.Ollama = starter.Server{Address: "http://localhost:11434/v1/", Models: []string{"llama3:8b"}}
			}
			if n&16 != 0 {
				choice.Tasks = starter.Server{Address: "https://render.example.com", Models: []string{"video-hunyuan-1.5", "image-flux-1"}}
			}
			if domain == "https://ai.example.com:8443" { // servers with a path
				choice.Messages.Address = "https://claude.example.com/proxy"
				if n&4 != 0 {
					choice.VLLM.Address = "https://openrouter.ai/api/v1"
				}
			}
			text, environment, missing, err := choice.Render("Caddyfile", "environment", func(string) string { return "" })
			if err != nil {
				t.Fatalf("%+v: %v", choice, err)
			}
			unset := 0
			for line := range strings.Lines(environment) {
				if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
					t.Setenv(name, value)
					if value == starter.Unset {
						unset++
					}
				}
			}
			if unset != len(missing) || n != 4 && n != 8 && n != 12 && unset == 0 {
				t.Errorf("%v is reported missing in\n%s", missing, environment)
			}
			adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v %v\n%s", err, warnings, text)
			}
			var decoded any
			var config caddy.Config
			if err := json.Unmarshal(adapted, &decoded); err != nil {
				t.Fatal(err)
			}
			for _, finding := range doctor.Examine(decoded, caddy.DefaultAdminListen, os.LookupEnv) {
				if strings.HasSuffix(finding.What, " is still "+starter.Unset+": requests that need it fail") {
					unset--
					continue
				}
				if finding.Level == "error" || finding.Level == "warning" && !strings.HasPrefix(finding.Where, "admin") { // the operator chooses the admin endpoint
					t.Errorf("the doctor reports %+v for\n%s", finding, text)
				}
			}
			if unset != 0 {
				t.Errorf("the doctor does not report %d variables that are not set, for\n%s", unset, text)
			}
			if err := caddy.StrictUnmarshalJSON(adapted, &config); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(&config); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
}

func TestTheKeysOfVendorsAreReadFromTheEnvironment(t *testing.T) {
	t.Parallel()
	choice := starter.Choice{Domain: "ai.example.com", Data: "/store", Anthropic: true, OpenAI: true}
	environment := make(map[string]bool)
	for range 2 {
		_, secrets, missing, err := choice.Render("Caddyfile", "environment", func(name string) string {
			return map[string]string{"ANTHROPIC_API_KEY": "sk-ant-1", "OPENAI_API_KEY": "two\nlines"}[name]
		})
		if err != nil || len(missing) != 1 || missing[0] != "OPENAI_API_KEY" || !strings.Contains(secrets, "\nANTHROPIC_API_KEY=sk-ant-1\n") {
			t.Fatalf("%v is missing in\n%s (%v)", missing, secrets, err)
		}
		environment[secrets] = true
	}
	if len(environment) != 2 {
		t.Error("two gateways have the same master key")
	}
}
