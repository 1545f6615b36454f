package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/pflag"

	"github.com/caddy-modelgate/modelgate/caddymodule/doctor"
	"github.com/caddy-modelgate/modelgate/caddymodule/starter"
)

// initResult is the answer of init, which --json prints.
type initResult struct {
	Caddyfile   string   `json:"caddyfile"`
	Environment string   `json:"environment"`
	Missing     []string `json:"missing"` // variables that the operator must set
}

// initialize writes a Caddyfile and its environment into a directory.
func initialize(c *call) error {
	dir, err := filepath.Abs(c.args["dir"])
	if err != nil {
		return err
	}
	made := initResult{filepath.Join(dir, "Caddyfile"), filepath.Join(dir, "environment"), nil}
	for _, file := range []string{made.Caddyfile, made.Environment} {
		if _, err := os.Lstat(file); err == nil {
			return errExit{exitRefused, fmt.Errorf("%s already exists", file)}
		}
	}
	choice := choiceOf(c)
	if choice.Data, err = filepath.Abs(cmp.Or(choice.Data, filepath.Join(dir, "store"))); err != nil {
		return err
	}
	render := func(choice *starter.Choice) (config, secrets string, missing []string, err error) {
		if config, secrets, missing, err = choice.Render(made.Caddyfile, made.Environment, os.Getenv); err == nil {
			err = checkConfig(made.Caddyfile, config)
		}
		return config, secrets, missing, err
	}
	if !slices.ContainsFunc(backendFlags, c.Flags().Changed) {
		err = completeChoice(c, choice, func(partial starter.Choice) error {
			partial.Anthropic = true // a choice needs one backend
			_, _, _, err := render(&partial)
			return err
		})
		if err != nil {
			return errUsage("%w", err)
		}
	}
	config, secrets, missing, err := render(choice)
	if err != nil {
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
	return c.printed(made, func(w *tabwriter.Writer, _ *call, _ []byte) error { return introduce(w, &made, choice) })
}

// introduce prints the next steps for the operator.
func introduce(w *tabwriter.Writer, made *initResult, choice *starter.Choice) error {
	fmt.Fprintf(w, "%s\n%s (secrets; keep a copy in another place)\n\nNext:\n\n", made.Caddyfile, made.Environment)
	if len(made.Missing) > 0 {
		fmt.Fprintf(w, "# Write these into %s: %s\n", filepath.Base(made.Environment), strings.Join(made.Missing, ", "))
	}
	fmt.Fprintln(w, "# Compare the prices in the Caddyfile with what you pay, then start the gateway")
	fmt.Fprintf(w, "%s run --config %s --envfile %s\n\n", program(), made.Caddyfile, made.Environment)
	_, err := fmt.Fprintf(w, "# In another terminal: a user, money and a key\n%[1]s modelgate user create alice\n"+
		"%[1]s modelgate wallet credit alice 5.00 --reason 'to try'\n%[1]s modelgate key create alice\n\n"+
		"# The first call, with the key that the last command prints\n%[2]s\n", program(), choice.FirstCall("sk-…"))
	return err
}

// backendFlags are the flags that name backends.
var backendFlags = []string{"anthropic", "anthropic-url", "openai", "vllm", "vllm-models", "ollama", "ollama-models", "tasks", "tasks-models"}

// choiceOf returns the choice that the flags make.
func choiceOf(c *call) *starter.Choice {
	server := func(name string) starter.Server {
		listed := c.Flags().Lookup(name + "-models").Value.(pflag.SliceValue).GetSlice()
		return starter.Server{Address: c.flag(name), Models: separated(strings.Join(listed, ","))}
	}
	return &starter.Choice{
		Domain: c.flag("domain"), Data: c.flag("data"), OpenAI: c.isSet("openai"),
		Anthropic: c.isSet("anthropic") || c.flag("anthropic-url") != "", Messages: starter.Server{Address: c.flag("anthropic-url")},
		VLLM: server("vllm"), Ollama: server("ollama"), Tasks: server("tasks"),
	}
}

// separated returns the words of a text, which commas or spaces separate.
func separated(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// completeChoice completes a choice without backends with the answers of the operator. If check refuses an
// answer, it repeats the question.
func completeChoice(c *call, choice *starter.Choice, check func(partial starter.Choice) error) error {
	failed := check(*choice) // by a flag, so no answer can be accepted
	in := bufio.NewScanner(c.InOrStdin())
	question := func(text string, set func(with *starter.Choice, answer string) error) {
		for wrong := failed; failed == nil; {
			fmt.Fprint(c.ErrOrStderr(), text+" ")
			if !in.Scan() && wrong != nil { // the first answer after the end of the input is empty
				failed = wrong
				return
			}
			with := *choice
			if wrong = set(&with, strings.TrimSpace(in.Text())); wrong == nil {
				wrong = check(with)
			}
			if wrong == nil {
				*choice = with
				return
			}
			fmt.Fprintln(c.ErrOrStderr(), wrong)
		}
	}
	yes := func(text string, of func(*starter.Choice) *bool) {
		question(text+" [y/N]", func(with *starter.Choice, answer string) error {
			*of(with) = slices.Contains([]string{"true", "y", "yes"}, strings.ToLower(answer))
			if !*of(with) && !slices.Contains([]string{"", "false", "n", "no"}, strings.ToLower(answer)) {
				return fmt.Errorf("%q is neither yes nor no", answer)
			}
			return nil
		})
	}
	server := func(text string, of func(*starter.Choice) *starter.Server) {
		question(text+" (empty: none):", func(with *starter.Choice, answer string) error {
			if answer != "" {
				*of(with) = starter.Server{Address: answer, Models: []string{"video-any"}} // until the next answer
			}
			return nil
		})
		if of(choice).Address != "" {
			question("Its models, separated by spaces or commas:", func(with *starter.Choice, answer string) error {
				of(with).Models = separated(answer)
				return nil
			})
		}
	}
	if !c.Flags().Changed("domain") {
		question("Domain of the site, such as ai.example.com (empty: "+choice.Domain+"):", func(with *starter.Choice, answer string) error {
			with.Domain = cmp.Or(answer, with.Domain)
			return nil
		})
	}
	yes("Serve models of Anthropic?", func(c *starter.Choice) *bool { return &c.Anthropic })
	yes("Serve models of OpenAI?", func(c *starter.Choice) *bool { return &c.OpenAI })
	server("Address of a vLLM server, or of another with OpenAI's interface, such as 10.0.0.5:8000 or https://ai.example.com/v1", func(c *starter.Choice) *starter.Server { return &c.VLLM })
	server("Address of an Ollama server, such as localhost:11434", func(c *starter.Choice) *starter.Server { return &c.Ollama })
	server("Address of a server of images and videos with /v1/videos", func(c *starter.Choice) *starter.Server { return &c.Tasks })
	return failed
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
	for _, finding := range doctor.Examine(config, caddy.DefaultAdminListen, os.LookupEnv) {
		if finding.Level == "error" {
			return fmt.Errorf("%s: %s", finding.What, finding.Remedy)
		}
	}
	return nil
}

// writeNew creates a file and writes it to disk. It returns an error if the file exists.
func writeNew(name, text string, mode os.FileMode) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}
