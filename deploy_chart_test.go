package modelgate_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// chartWith returns the manifests that Helm renders with these values, by kind and name.
func chartWith(t *testing.T, helm string, values ...string) (manifests map[string]string, err error) {
	t.Helper()
	args := []string{"template", "x", "deploy/helm/modelgate"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	out, err := exec.CommandContext(t.Context(), helm, args...).Output() //nolint:gosec // a command of this test
	manifests = make(map[string]string)
	for manifest := range strings.SplitSeq(string(out), "\n---\n") {
		if found := regexp.MustCompile(`(?m)^kind: (\w+)\nmetadata:\n  name: (\S+)$`).FindStringSubmatch(manifest); found != nil {
			manifests[found[1]+" "+found[2]] = manifest
		}
	}
	return manifests, err
}

// TestTheChartPublishesNoMetrics checks the rendered chart: the metrics have a separate
// Service, and the ServiceMonitor selects only that.
func TestTheChartPublishesNoMetrics(t *testing.T) {
	t.Parallel()
	helm, err := exec.LookPath("helm")
	if err != nil {
		t.Skip(err)
	}
	manifests, err := chartWith(t, helm, "serviceMonitor.enabled=true", "prometheusRule.enabled=true", "prometheusRule.labels.release=p", "service.type=LoadBalancer")
	if err != nil {
		t.Fatal(err)
	}
	const component = "app.kubernetes.io/component: metrics"
	public, metrics := manifests["Service x"], manifests["Service x-metrics"]
	if !strings.Contains(public, "type: LoadBalancer") || strings.Contains(public, "metrics") {
		t.Errorf("the Service of the site is\n%s", public)
	}
	if !strings.Contains(metrics, "port: 9180") || !strings.Contains(metrics, "type: ClusterIP") || !strings.Contains(metrics, component) {
		t.Errorf("the Service of the metrics is\n%s", metrics)
	}
	if _, selector, _ := strings.Cut(manifests["ServiceMonitor x"], "matchLabels:"); !strings.Contains(selector, component) {
		t.Errorf("the ServiceMonitor selects\n%s", selector)
	}
	rule := manifests["PrometheusRule x"]
	alerts := regexp.MustCompile(`(?m)- alert: \w+$`).FindAllString(read(t, "deploy/observability/alerts.yaml"), -1)
	for _, alert := range append(alerts, "release: p") {
		if !strings.Contains(rule, alert) {
			t.Errorf("the PrometheusRule lacks %q", alert)
		}
	}
	for _, kind := range []string{"NetworkPolicy x", "PodDisruptionBudget x", "StatefulSet x"} {
		if manifests[kind] == "" {
			t.Errorf("the chart has no %s", kind)
		}
	}
	for _, wrong := range []string{"replicas=2", "networkPolicy.form=x", "serviceMonitor.interval=often", "prometheusRule.labels=x"} {
		if _, err := chartWith(t, helm, wrong); err == nil {
			t.Errorf("the schema accepts %s", wrong)
		}
	}
}
