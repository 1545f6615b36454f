package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// demoRun is what the demo prints with --json.
type demoRun struct {
	URL      string `json:"base_url"`
	Admin    string `json:"admin"`
	Key      string `json:"api_key"`
	Token    string `json:"access_token"`
	User     string `json:"user"`
	Password string `json:"password"`
}

// startDemo starts the demo with these arguments in addition to --json.
func startDemo(t *testing.T, args ...string) (p *process, run demoRun) {
	t.Helper()
	dir := t.TempDir()
	p = launch(t, []string{"HOME=" + dir, "TMPDIR=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}, append([]string{"modelgate", "demo", "--json"}, args...)...)
	p.await(`"api_key"`)
	for _, line := range p.log.lines(`"api_key"`) {
		if json.Unmarshal([]byte(line), &run) == nil {
			return p, run
		}
	}
	t.Fatalf("the demo printed no JSON:\n%s", p.log.tail(10))
	return p, run
}

// prometheus is a running Prometheus.
type prometheus struct {
	t      *testing.T
	origin string
}

// startPrometheus starts the real program with the alerts of deploy. It scrapes an admin
// endpoint every second.
func startPrometheus(t *testing.T, program, target string) prometheus {
	t.Helper()
	alerts, err := filepath.Abs("../deploy/observability/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), freeAddress(t)
	config := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs: [{job_name: modelgate, static_configs: [{targets: [%q]}]}]
`, alerts, target), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(program, "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address, "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", out.String())
		}
	})
	return prometheus{t, "http://" + address}
}

// get requests a path of the API. It returns false until Prometheus answers.
func (p prometheus) get(path string, answer any) bool {
	p.t.Helper()
	resp, err := http.Get(p.origin + path)
	if err != nil {
		return false // Prometheus has not started yet
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusBadRequest {
		p.t.Fatalf("%s gets %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer) == nil
}

// has reports whether a query returns a value.
func (p prometheus) has(expression string) bool {
	p.t.Helper()
	var answer struct {
		Data struct {
			Result []any `json:"result"`
		} `json:"data"`
	}
	return p.get("/api/v1/query?query="+url.QueryEscape(expression), &answer) && len(answer.Data.Result) > 0
}

// dashboardExpressions returns the expressions of the panels of the dashboard.
func dashboardExpressions(t *testing.T) (expressions []string) {
	t.Helper()
	text, err := os.ReadFile("../deploy/observability/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expressions = append(expressions, strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
		}
	}
	return expressions
}

// TestTheMetricsOfAlertsAndDashboardAreExported scrapes a demo with a real Prometheus. Some
// metrics need a task of a removed backend, an upstream and a backup. The demo makes no call,
// so every counter must be exported as 0.
func TestTheMetricsOfAlertsAndDashboardAreExported(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip(err)
	}
	demo, run := startDemo(t)
	send := func(method, address, body string) {
		t.Helper()
		req := must(http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body)))
		req.Header.Set("Content-Type", "application/json")
		if strings.HasPrefix(address, run.URL) {
			req.Header.Set("Authorization", "Bearer "+run.Key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s gets %s", method, address, resp.Status)
		}
	}
	send(http.MethodPost, run.URL+"/v1/platform/video", `{"model":"video-demo-1","prompt":"demo:stuck","output":{"duration":4}}`)
	config := "http://" + run.Admin + "/config/apps/"
	send(http.MethodPatch, config+"modelgate/backends/0/name", `"another"`)
	send(http.MethodPut, config+"http/servers/upstream", fmt.Sprintf(
		`{"listen":[%q],"routes":[{"handle":[{"handler":"reverse_proxy","upstreams":[{"dial":%q}]}]}]}`, freeAddress(t), freeAddress(t)))
	backup := launch(t, nil, "modelgate", "backup", filepath.Join(t.TempDir(), "backup"), "--address", run.Admin)
	if code := backup.code(waitLimit); code != 0 {
		t.Fatalf("the backup: exit code %d:\n%s", code, backup.log.tail(10))
	}

	p := startPrometheus(t, program, run.Admin)
	gatetest.Eventually(t, "Prometheus has scraped the demo", func() (any, bool) {
		return p, p.has("count_over_time(up[1m]) > 2 and up == 1")
	})
	alerts, err := os.ReadFile("../deploy/observability/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b(?:modelgate|caddy|process|go)_[a-z_]+`).FindAllString(string(alerts), -1)
	if len(names) < 20 {
		t.Errorf("the alerts use only %q", names)
	}
	without := dashboardExpressions(t) // queries without a result
	for _, name := range names {
		without = append(without, "count("+name+")")
	}
	gatetest.Eventually(t, "no query is without a result", func() ([]string, bool) {
		without = slices.DeleteFunc(without, p.has)
		return without, len(without) == 0
	})
	checkRules(t, p)

	demo.terminate()
	demo.code(waitLimit)
	demo.checkLog()
}

// checkRules checks that every alert was evaluated without an error.
func checkRules(t *testing.T, p prometheus) {
	t.Helper()
	type evaluated struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name   string `json:"name"`
					Health string `json:"health"`
					Error  string `json:"lastError"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	answer := gatetest.Eventually(t, "the alerts are evaluated", func() (answer evaluated, ok bool) {
		ok = p.get("/api/v1/rules", &answer) && len(answer.Data.Groups) == 1 && answer.Data.Groups[0].Rules[0].Health != "unknown"
		return answer, ok
	})
	for _, rule := range answer.Data.Groups[0].Rules {
		if rule.Health != "ok" {
			t.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.Error)
		}
	}
}
