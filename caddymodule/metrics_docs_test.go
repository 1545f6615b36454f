package caddymodule_test

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// described is the description of a metric in docs/reference/metrics.md.
type described struct {
	kind   string
	labels []string
	values map[string][]string // listed values by label
}

// describedMetrics reads docs/reference/metrics.md.
func describedMetrics(t *testing.T) map[string]described {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("`([^`]+)`")
	codes := func(text string) (list []string) {
		for _, found := range code.FindAllStringSubmatch(text, -1) {
			list = append(list, found[1])
		}
		return list
	}
	metrics := make(map[string]described)
	for _, found := range regexp.MustCompile(`(?m)^### (modelgate_\w+)\n\n(Counter|Gauge|Histogram), in [^.]+\. Labels?: ([^.]+)\.$`).FindAllStringSubmatch(string(text), -1) {
		labels := codes(found[3])
		slices.Sort(labels)
		metrics[found[1]] = described{strings.ToLower(found[2]), labels, make(map[string][]string)}
	}
	for _, found := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (.*) \\| (`.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		for name, metric := range metrics {
			if found[2] == "all with this label" || found[2] == "`"+name+"`" {
				if slices.Contains(metric.labels, found[1]) {
					metric.values[found[1]] = codes(found[3])
				}
			}
		}
	}
	return metrics
}

// exported scrapes the metrics of modelgate. It returns their types, and the label values
// of each series.
func exported(t *testing.T, g *gatetest.Gate) (types map[string]string, all map[string][]map[string]string) {
	t.Helper()
	status, text := g.Admin(t, http.MethodGet, "/metrics", nil)
	if status != http.StatusOK {
		t.Fatalf("/metrics gets %d", status)
	}
	types, all = make(map[string]string), make(map[string][]map[string]string)
	pair := regexp.MustCompile(`(\w+)="([^"]*)"`)
	for line := range strings.Lines(string(text)) {
		if found, is := strings.CutPrefix(line, "# TYPE modelgate_"); is {
			words := strings.Fields(found)
			types["modelgate_"+words[0]] = words[1]
			continue
		}
		name, labels, _ := strings.Cut(line, "{")
		if !strings.HasPrefix(name, "modelgate_") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum") {
			continue
		}
		values := make(map[string]string)
		for _, found := range pair.FindAllStringSubmatch(labels, -1) {
			values[found[1]] = found[2]
		}
		name = strings.TrimSuffix(name, "_count")
		all[name] = append(all[name], values)
	}
	return types, all
}

// combinations returns every combination of the values of labels.
func combinations(labels []string, values map[string][]string) []map[string]string {
	all := []map[string]string{{}}
	for _, label := range labels {
		if values[label] == nil {
			continue
		}
		var longer []map[string]string
		for _, before := range all {
			for _, value := range values[label] {
				one := maps.Clone(before)
				one[label] = value
				longer = append(longer, one)
			}
		}
		all = longer
	}
	return all
}

// TestTheReferenceHasEveryMetric compares the page with the metrics of a gateway in which
// everything is configured: names, types, labels and their values, in both directions. Every
// counter is exported from the start.
func TestTheReferenceHasEveryMetric(t *testing.T) {
	config := mockConfig("documented", "")
	config.App += "\nbase_url http://127.0.0.1\npayment demo"
	config.Site = strings.Replace(config.Site, "modelgate_openai {", "modelgate_openai {\nstate own", 1) + "\nmodelgate_tasks\nmodelgate_console\nmodelgate_stepup /guarded"
	g := gatetest.Start(t, config)
	metrics := describedMetrics(t)
	types, before := exported(t, g)
	for name, metric := range metrics {
		if metric.kind == "gauge" {
			continue
		}
		for _, want := range combinations(metric.labels, metric.values) {
			there := slices.ContainsFunc(before[name], func(series map[string]string) bool {
				for label, value := range want {
					if series[label] != value {
						return false
					}
				}
				return true
			})
			if !there {
				t.Errorf("%s is not exported at the start with %v", name, want)
			}
		}
	}

	gatetest.Submit(t, g.NewKey(t, nil)) // for gauges of tasks
	if err := g.Reload(mockConfig("instead", "")); err != nil {
		t.Fatal(err)
	}
	g.Wait(2 * time.Minute) // the backlog is cached for one
	after, all := exported(t, g)
	maps.Copy(types, after)
	for name, kind := range types {
		metric, known := metrics[name]
		if !known || metric.kind != kind {
			t.Errorf("%s is a %s; the page says %q", name, kind, metric.kind)
			continue
		}
		delete(metrics, name)
		for _, series := range append(before[name], all[name]...) {
			if labels := slices.Sorted(maps.Keys(series)); !slices.Equal(labels, metric.labels) {
				t.Errorf("%s has the labels %v, the page says %v", name, labels, metric.labels)
				break
			}
			for label, value := range series {
				if values := metric.values[label]; values != nil && label != "code" && !slices.Contains(values, value) {
					t.Errorf("%s has %s=%q, which the page does not list", name, label, value)
				}
			}
		}
	}
	for name := range metrics {
		t.Errorf("%s is not exported", name)
	}
}
