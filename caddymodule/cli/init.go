package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/pflag"

	"github.com/caddy-modelgate/modelgate/caddymodule/doctor"
	"github.com/caddy-modelgate/modelgate/caddymodule/starter"
)

// written is the result of init, which --json prints.
type written struct {
	Caddyfile   string   `json:"caddyfile"`
	Environment string   `json:"environment"`
	Missing     []string `json:"missing"` // variables that the operator has to fill in
}

// initialize writes a Caddyfile and its environment into a directory.
func initialize(c *call) error {
	dir, err := filepath.Abs(c.args["dir"])
	if err != nil {
		return err
	}
	made := written{filepath.Join(dir, "Caddyfile"), filepath.Join(dir, "environment"), nil}
	for _, file := range []string{made.Caddyfile, made.Environment} {
		if _, err := os.Lstat(file); err == nil {
			return errExit{exitRefused, fmt.Errorf("%s already exists", file)}
		}
	}
	choice := chosen(c)
	if choice.Data == "" {
		choice.Data = filepath.Join(dir, "store")
	}
	if choice.Data, err = filepath.Abs(choice.Data); err != nil {
		return err
	}
	config, secrets, missing, err := choice.Render(made.Caddyfile, made.Environment, os.Getenv)
	if err != nil {
		return errUsage("%w", err)
	}
	if err := checkConfig(made.Caddyfile, config); err != nil {
		return errUsage("%w", err)
	}
	made.Missing = append([]string{}, missing...)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the service's user reads the Caddyfile
		return err
	}
	if err := writeNew(made.Environment, secrets, 0o600); err != nil {
		return err
	}
	if err := writeNew(made.Caddyfile, config, 0o644); err != nil {
		return err
	}
	return c.printed(made, func(w *tabwriter.Writer, _ *call, _ []byte) error { return introduce(w, &made) })
}

// introduce prints the next steps of the operator.
func introduce(w *tabwriter.Writer, made *written) error {
	fmt.Fprintf(w, "%s\n%s (secrets; keep a copy in another place)\n\nNext:\n\n", made.Caddyfile, made.Environment)
	if len(made.Missing) > 0 {
		fmt.Fprintf(w, "# Write these into %s: %s\n", filepath.Base(made.Environment), strings.Join(made.Missing, ", "))
	}
	fmt.Fprintln(w, "# Compare the prices in the Caddyfile with what you pay, then start it")
	fmt.Fprintf(w, "%s run --config %s --envfile %s\n\n", program(), made.Caddyfile, made.Environment)
	_, err := fmt.Fprintf(w, "# In another terminal: a user, money and a key\n%[1]s modelgate user create alice\n"+
		"%[1]s modelgate wallet credit alice 5.00 --reason 'to try'\n%[1]s modelgate key create alice\n", program())
	return err
}

// chosen returns the choice in the flags. If the flags name no backend, it asks the operator.
func chosen(c *call) *starter.Choice {
	flags, asked := c.Flags(), true
	for _, name := range []string{"anthropic", "openai", "vllm", "ollama", "tasks"} {
		asked = asked && !flags.Changed(name)
	}
	in := bufio.NewScanner(c.InOrStdin())
	text := func(name, question string) string {
		if !asked || flags.Changed(name) {
			return c.flag(name)
		}
		fmt.Fprint(c.ErrOrStderr(), question+" ")
		if in.Scan() && strings.TrimSpace(in.Text()) != "" {
			return strings.TrimSpace(in.Text())
		}
		return c.flag(name)
	}
	yes := func(name, question string) bool {
		return slices.Contains([]string{"true", "y", "yes"}, strings.ToLower(text(name, question+" [y/N]")))
	}
	server := func(name, question string) (s starter.Server) {
		models := flags.Lookup(name + "-models")
		s.Models = models.Value.(pflag.SliceValue).GetSlice()
		if s.Address = text(name, question+" (empty: none):"); s.Address != "" && asked && !models.Changed {
			fmt.Fprint(c.ErrOrStderr(), "Its models, separated by spaces: ")
			in.Scan()
			s.Models = strings.Fields(in.Text())
		}
		return s
	}
	return &starter.Choice{
		Domain:    text("domain", "Domain of the site, such as ai.example.com (empty: "+c.flag("domain")+"):"),
		Data:      c.flag("data"),
		Anthropic: yes("anthropic", "Serve models of Anthropic?"),
		OpenAI:    yes("openai", "Serve models of OpenAI?"),
		VLLM:      server("vllm", "Address of a vLLM server, such as 10.0.0.5:8000"),
		Ollama:    server("ollama", "Address of an Ollama server, such as localhost:11434"),
		Tasks:     server("tasks", "Address of a server of images and videos with /v1/videos"),
	}
}

// checkConfig adapts a Caddyfile and checks the result with the doctor.
func checkConfig(file, text string) error {
	adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": file})
	if err != nil {
		return err
	}
	if len(warnings) > 0 {
		return fmt.Errorf("the Caddyfile: %v", warnings)
	}
	var config any
	if err := json.Unmarshal(adapted, &config); err != nil {
		return err
	}
	for _, finding := range doctor.Examine(config, caddy.DefaultAdminListen) {
		if finding.Level == "error" {
			return fmt.Errorf("%s: %s", finding.What, finding.Remedy)
		}
	}
	return nil
}

// writeNew creates a file. It returns an error if the file exists.
func writeNew(name, text string, mode os.FileMode) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}
