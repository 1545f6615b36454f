package doctor

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/dustin/go-humanize"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/caddymodule/starter"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/media"
)

// checkTasks searches for settings that prevent the submission of tasks or the download
// of results.
func checkTasks(config any) []Finding {
	rows := get[[]any](config, "apps", "modelgate", "backends")
	routed := hasHandler(config, "modelgate_tasks")
	if len(rows) == 0 && routed {
		return []Finding{{
			"warning", "apps.modelgate.backends", "there is modelgate_tasks but no backend: every image and every video is refused",
			"add a backend: backend <name> { models … adapter … }",
		}}
	}
	findings := checkFamilies(config)
	if len(rows) == 0 {
		return findings
	}
	if !routed {
		findings = append(findings, Finding{
			"warning", "apps.modelgate.backends", "modelgate_tasks is missing: API keys cannot submit tasks, and links to results do not work",
			"add modelgate_tasks to the site that base_url names",
		})
	}
	own := get[string](config, "apps", "modelgate", "media", "base_url")
	base := get[string](config, "apps", "modelgate", "base_url")
	if !get[bool](config, "apps", "modelgate", "media", "off") && base+own == "" {
		findings = append(findings, Finding{
			"error", "apps.modelgate.base_url", "base_url is missing: the links to results need it, so the configuration does not start",
			"set the address of the site, such as base_url https://ai.example.com, or use the links of the services: media off",
		})
	}
	for i, row := range rows {
		findings = append(findings, checkBackend(config, fmt.Sprintf("apps.modelgate.backends[%d]", i), row)...)
	}
	if u, err := url.Parse(get[string](config, "apps", "modelgate", "callback", "url")); err == nil && u.Scheme == "http" && !starter.IsLoopback(u.Hostname()) {
		findings = append(findings, Finding{
			"warning", "apps.modelgate.callback.url", "callbacks are sent in clear, with the links to results: others on the network can download the results",
			"use https for the receiver",
		})
	}
	if secret := at(config, "apps", "modelgate", "callback", "secret"); secret != nil && inClear(secret) {
		findings = append(findings, clearSecret("apps.modelgate.callback.secret", "of callbacks"))
	}
	return findings
}

// checkFamilies searches for models in families that no backend runs.
func checkFamilies(config any) (findings []Finding) {
	run := patternsOf(config, "backends")
	for i, row := range get[[]any](config, "apps", "modelgate", "families") {
		for _, models := range patterns(at(row, "models")) {
			if !slices.ContainsFunc(run, func(other catalog.Pattern) bool { return overlapGenerations(models, other) }) {
				findings = append(findings, Finding{
					"warning", fmt.Sprintf("apps.modelgate.families[%d]", i), fmt.Sprintf("no backend runs %s: every task of it is refused", models),
					"add it to the models of a backend, or remove it from the family",
				})
			}
		}
	}
	return findings
}

// adapterSecrets are the fields of adapters that hold a secret.
var adapterSecrets = []string{"key", "secret_key", "webhook_secret", "callback_secret"}

// checkBackend checks one backend.
func checkBackend(config any, path string, row any) []Finding {
	var findings []Finding
	if get[string](row, "adapter", "adapter") == "demo" {
		findings = append(findings, Finding{
			"note", path + ".adapter", "the demo adapter generates test pictures without a model",
			"remove it before users pay for tasks",
		})
	}
	for _, name := range adapterSecrets {
		if secret := at(row, "adapter", name); secret != nil && inClear(secret) {
			findings = append(findings, clearSecret(path+".adapter."+name, "of the service"))
		}
	}
	families := patternsOf(config, "families")
	for _, models := range patterns(at(row, "models")) {
		name := string(models)
		if !slices.ContainsFunc(families, func(other catalog.Pattern) bool { return overlapGenerations(models, other) }) {
			findings = append(findings, Finding{
				"warning", path + ".models", name + " is in no family: platform tasks of it are refused; only /v1/videos and /v1/video/generations accept it",
				"add it to a family: family <A to F> " + name,
			})
		}
		if unpricedGeneration(config, models) {
			findings = append(findings, Finding{
				"warning", path + ".models", name + " has no price for generations: every task of it is refused",
				"give it one, price " + name + " { second … } or { image … }, or let models without a price be free: unpriced allow",
			})
		}
	}
	return findings
}

func clearSecret(path, of string) Finding {
	return Finding{"warning", path, "a secret " + of + " is in clear in the configuration, which Caddy saves and shows at its admin endpoint", usePlaceholder}
}

// unpricedGeneration reports whether the configuration has prices, but none for generations by
// models of the pattern.
func unpricedGeneration(config any, pattern catalog.Pattern) bool {
	prices := pricesOf(config)
	if len(prices) == 0 || at(config, "apps", "modelgate", "unpriced") == caddymodule.AllowUnpriced {
		return false
	}
	return !slices.ContainsFunc(prices, func(p catalog.Price) bool {
		return (len(p.Second)+len(p.Image) > 0 || p.Request > 0) && overlapGenerations(p.Model, pattern)
	})
}

// checkMedia checks the disk space for results and the secrets of the bucket.
func checkMedia(config any) []Finding {
	settings := at(config, "apps", "modelgate", "media")
	for _, name := range []string{"access_key", "secret_key"} {
		if secret := at(settings, "s3", name); secret != nil && inClear(secret) {
			return []Finding{clearSecret("apps.modelgate.media.s3."+name, "of the bucket")}
		}
	}
	path := get[string](settings, "path")
	if path == "" {
		if store := get[string](config, "apps", "modelgate", "storage", "path"); store != "" {
			path = store + ".media"
		}
	}
	if get[bool](settings, "off") || len(get[[]any](config, "apps", "modelgate", "backends")) == 0 || path == "" || at(settings, "s3") != nil {
		return nil
	}
	path, err := caddy.NewReplacer().ReplaceOrErr(path, true, true)
	if err != nil {
		return nil // Caddy reports it when it starts the configuration
	}
	free, least, err := media.FreeSpace(path)
	if err != nil || free >= least {
		return nil
	}
	return []Finding{{
		"warning", "apps.modelgate.media", fmt.Sprintf("%s has %s free, but the gateway copies results only while %s are free: tasks do not end until there is enough space",
			path, humanize.IBytes(free), humanize.IBytes(least)),
		"free some space, or use another directory: media { path … }",
	}}
}
