package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/caddymodule/doctor"
)

// examine prints the findings of the doctor about the configuration of --config or the
// running one. For the running one it also examines the status.
func examine(c *call) error {
	var config any
	file := c.flag("config")
	if file == "" {
		if err := c.send(http.MethodGet, "/config/", &config); err != nil {
			return err
		}
	} else {
		if _, err := os.Stat(file); err != nil {
			return errExit{exitNotFound, err}
		}
		raw, _, _, err := caddycmd.LoadConfig(file, c.flag("adapter"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &config); err != nil {
			return err
		}
	}
	findings := doctor.Examine(config, cmp.Or(c.flag("address"), caddy.DefaultAdminListen), environmentOf(file))
	if file == "" {
		findings = append(findings, examineRunning(c)...)
	}
	err := c.printed(map[string]any{"findings": findings}, func(w *tabwriter.Writer, _ *call, _ []byte) error {
		for _, f := range findings {
			fmt.Fprintf(w, "%s\t%s\t%s\n\t\t→ %s\n", f.Level, f.Where, f.What, f.Remedy)
		}
		if len(findings) == 0 {
			fmt.Fprintln(w, "nothing found")
		}
		return nil
	})
	if err == nil && slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Level == "error" }) {
		err = errors.New("the doctor found errors")
	}
	return err
}

// environmentOf returns the variables of this process and of the file environment, which init
// writes into the directory of the configuration file. With that file, all variables of the server
// are known.
func environmentOf(file string) doctor.Environment {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "environment"))
	if file == "" || err != nil {
		return os.LookupEnv
	}
	variables := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			variables[name] = value
		}
	}
	return func(name string) (value string, known bool) {
		value, known = variables[name]
		if !known {
			value = os.Getenv(name)
		}
		return value, true
	}
}

// examineRunning returns findings about the status of a running gateway. It ignores
// errors: a configuration without modelgate has no status.
func examineRunning(c *call) (findings []doctor.Finding) {
	var s adminapi.Status
	if err := c.send(http.MethodGet, "/modelgate/status", &s); err != nil {
		return nil
	}
	const day = 24 * time.Hour
	if age := time.Since(time.Unix(s.LastBackup, 0)); age > 2*day { // as the alert BackupOld
		what := "the store was never backed up"
		if s.LastBackup != 0 {
			what = fmt.Sprintf("the last backup of the store is %d days old", age/day)
		}
		findings = append(findings, doctor.Finding{
			Level: "warning", Where: "apps.modelgate.storage", What: what,
			Remedy: "make a backup every day, and keep it on another machine: caddy modelgate backup <file>",
		})
	}
	if len(s.Restricted) > 0 {
		findings = append(findings, doctor.Finding{
			Level: "warning", Where: "apps.modelgate.uncollected_tolerance",
			What:   fmt.Sprintf("calls of %d users cost more than could be collected, so these users can make only one call at a time: %s", len(s.Restricted), strings.Join(s.Restricted, ", ")),
			Remedy: "find the models with `usage report --by user,model`, and check context and max_output of their prices; the restriction ends by itself",
		})
	}
	return append(findings, examineNodes(s.Nodes)...)
}

// examineNodes returns findings about the gateways of a shared store.
func examineNodes(nodes []adminapi.Node) (findings []doctor.Finding) {
	add := func(what, remedy string) {
		findings = append(findings, doctor.Finding{Level: "warning", Where: "apps.modelgate.storage", What: what, Remedy: remedy})
	}
	configs, versions := map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		if n.State != adminapi.NodeLive {
			continue
		}
		configs[n.Config], versions[n.Version] = true, true
	}
	if len(configs) > 1 {
		add(fmt.Sprintf("the gateways of the store have %d different options: prices, plans and limits depend on which one answers", len(configs)),
			"give all of them the same options, and compare with: caddy modelgate node list")
	}
	if len(versions) > 1 {
		add(fmt.Sprintf("the gateways of the store run %d different versions", len(versions)), "finish the upgrade; compare with: caddy modelgate node list")
	}
	return findings
}
