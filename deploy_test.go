package modelgate_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// namesIn returns all matches of the first group of a regular expression in files.
func namesIn(t *testing.T, expression string, files ...string) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, file := range files {
		for _, found := range regexp.MustCompile(expression).FindAllStringSubmatch(read(t, file), -1) {
			names[found[1]] = true
		}
	}
	if len(names) == 0 {
		t.Fatalf("%s: no match of %s", files, expression)
	}
	return names
}

// TestTheMetricsOfAlertsAndOfTheDashboardExist compares the alerts and the dashboard with the
// reference. A test of package caddymodule compares the reference with a gateway.
func TestTheMetricsOfAlertsAndOfTheDashboardExist(t *testing.T) {
	t.Parallel()
	documented := namesIn(t, `(?m)^### (modelgate_[a-z_]+)$`, "docs/reference/metrics.md")
	for name := range namesIn(t, `\b(modelgate_[a-z_]+)`, "deploy/observability/alerts.yaml", "deploy/observability/grafana.json") {
		if !documented[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("the metric %s does not exist", name)
		}
	}
}

// TestEachAlertHasASection compares the alerts with the guide, in both directions.
func TestEachAlertHasASection(t *testing.T) {
	t.Parallel()
	alerts := namesIn(t, `(?m)^ +- alert: (\w+)$`, "deploy/observability/alerts.yaml")
	sections := namesIn(t, `(?m)^### (\w+)$`, "docs/guide/monitoring.md")
	for name := range alerts {
		if !sections[name] {
			t.Errorf("docs/guide/monitoring.md has no section %s", name)
		}
	}
	for name := range sections {
		if !alerts[name] {
			t.Errorf("the alert %s does not exist", name)
		}
	}
}

// TestTheFilesOfDeployAreValid checks the files with the tools that read them.
func TestTheFilesOfDeployAreValid(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{
		{"promtool", "test", "rules", "deploy/observability/alerts_test.yaml"},
		{"promtool", "check", "config", "--syntax-only", "deploy/observability/prometheus.yaml"},
		{"helm", "lint", "--strict", "deploy/helm/modelgate"},
		{"helm", "template", "deploy/helm/modelgate", "--set", "serviceMonitor.enabled=true"},
	} {
		t.Run(strings.Join(command, " "), func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(command[0])
			if err != nil {
				t.Skip(err)
			}
			for i, word := range command[1:] {
				command[i+1] = filepath.FromSlash(word)
			}
			if out, err := exec.CommandContext(t.Context(), program, command[1:]...).CombinedOutput(); err != nil { //nolint:gosec // a command of this table
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
