// Package cli is the command `caddy modelgate` with its commands, each a noun and a
// verb. Most of them send one request to the admin endpoint of a running Caddy and
// print the answer, whose types are those of package adminapi; restore, demo, and
// verify and doctor with a file need no server.
//
// A command is made by command, which ties errors to exit codes; client speaks to the
// admin endpoint; printed writes the answer as JSON or in words.
package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "modelgate",
		Short: "Operates the model gateway",
		Long: `
Operates the model gateway of a running Caddy, over its admin endpoint.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused,
5 server unreachable.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.PersistentFlags().Bool("json", false, "Print the answer as one line of JSON")
			cmd.PersistentFlags().String("address", "", "Address of Caddy's admin endpoint (default: "+caddy.DefaultAdminListen+")")
			cmd.PersistentFlags().Bool("yes", false, "Do not ask before what cannot be undone")
			cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misused(cmd, minusIsNoFlag(err)) })
			cmd.Args, cmd.RunE = usageIfCalled()
			cmd.AddCommand(
				noun("user", "Users", userCommands()...),
				noun("key", "API keys", keyCommands()...),
				noun("secret", "The master key, by which secrets in the store are sealed", secretCommands()...),
				noun("wallet", "Prepaid money", walletCommands()...),
				noun("plan", "Plans on sale", planCommands()...),
				noun("subscription", "Plans that users have", subscriptionCommands()...),
				noun("usage", "What calls came to", usageCommands()...),
				noun("task", "Images and videos that are generated", taskCommands()...),
				noun("callback", "What receivers are told of tasks that are over", callbackCommands()...),
				noun("backend", "Services that generate images and videos", backendCommands()...),
				statusCommand(), verifyCommand(), doctorCommand(), backupCommand(), restoreCommand(), demoCommand(),
			)
		},
	})
}

// Exit codes, as README.md#operating-it lists them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitUnreachable = 5
)

// exit ends a command with a code above 1. Only Caddy can make the error that
// carries one, so its wrapper is called for it.
func exit(cmd *cobra.Command, code int, err error) error {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.Root().SilenceErrors, cmd.Root().SilenceUsage = true, true
	fmt.Fprintln(cmd.ErrOrStderr(), "Error: "+err.Error())
	return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return code, nil })(cmd, nil)
}

// misused ends a command that was called in another form than it has, and shows
// the form.
func misused(cmd *cobra.Command, err error) error {
	err = exit(cmd, exitUsage, err)
	fmt.Fprint(cmd.ErrOrStderr(), cmd.UsageString())
	return err
}

// minusIsNoFlag says of a negative number among the arguments what it was taken
// for; other errors stay.
func minusIsNoFlag(err error) error {
	var unknown interface{ GetSpecifiedShortnames() string }
	if errors.As(err, &unknown) {
		if word := unknown.GetSpecifiedShortnames(); word != "" && word[0] >= '0' && word[0] <= '9' {
			return fmt.Errorf("-%s was read as a flag: amounts and numbers have no minus here; debit takes money away", word)
		}
	}
	return err
}

// errExit is what a command returns to end with a code other than 1.
type errExit struct {
	code int
	err  error
}

func (e errExit) Error() string { return e.err.Error() }
func (e errExit) Unwrap() error { return e.err }

// errUsage says that a command was called in a wrong way.
func errUsage(format string, args ...any) error {
	return errExit{exitUsage, fmt.Errorf(format, args...)}
}

// command makes a command whose arguments are named in its use line, all of
// them required, and whose errors carry their exit codes.
func command(use, short string, run func(*cobra.Command, []string) error) *cobra.Command {
	args := strings.Count(use, "<")
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) != args {
				return misused(cmd, fmt.Errorf("%s given, %d needed", counted(len(given), "argument", "arguments"), args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, given []string) error {
			err := run(cmd, given)
			if err == nil {
				return nil
			}
			code := exitFailed
			if coded := (errExit{}); errors.As(err, &coded) {
				code = coded.code
			}
			if code == exitFailed {
				cmd.SilenceUsage = true
				return err
			}
			return exit(cmd, code, err)
		},
	}
}

// noun groups the verbs of one kind of thing.
func noun(name, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short}
	cmd.Args, cmd.RunE = usageIfCalled()
	cmd.AddCommand(verbs...)
	return cmd
}

// usageIfCalled makes a command that needs another word say so.
func usageIfCalled() (cobra.PositionalArgs, func(*cobra.Command, []string) error) {
	return cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return misused(cmd, fmt.Errorf("unknown command %q", args[0]))
		}
		return misused(cmd, errors.New("a command is missing"))
	}
}

// printed prints an answer: as it is with --json, else by the given words.
func printed(cmd *cobra.Command, answer any, words func(io.Writer)) error {
	out := cmd.OutOrStdout()
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return json.NewEncoder(out).Encode(answer)
	}
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	words(table)
	return table.Flush()
}

// counted writes a number with what it counts.
func counted[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// replayed says of what was done before that nothing was done now.
func replayed(w io.Writer, before bool) {
	if before {
		fmt.Fprintln(w, "This was done before, with this idempotency key; nothing was done now.")
	}
}

// confirmed asks before what cannot be undone, unless --yes was given.
func confirmed(cmd *cobra.Command, question string) error {
	if yes, _ := cmd.Flags().GetBool("yes"); yes {
		return nil
	}
	fmt.Fprint(cmd.ErrOrStderr(), question+" [y/N] ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	fmt.Fprintln(cmd.ErrOrStderr())
	return errExit{exitRefused, errors.New("not confirmed; say y, or give --yes")}
}

// moment writes Unix seconds for a person; zero as a dash.
func moment(seconds int64) string {
	if seconds == 0 {
		return "-"
	}
	return time.Unix(seconds, 0).UTC().Format("2006-01-02 15:04:05Z")
}
