// Package cli is the command `caddy modelgate` with its subcommands. Most of them send one
// request to the admin endpoint of a running Caddy and print the answer, which has a type
// of package adminapi. The commands restore, init, demo, version and price import need no
// server, nor do verify and doctor with a file.
//
// The table [commands], in commands.go, orders.go and export.go, has a row for each command: its
// words, arguments and flags, its request, and the printer of the answer. A command that does more has its own function.
// [call] is one run of a command, [client] sends requests, and a [printer] prints an
// answer as text.
package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
			cmd.PersistentFlags().Bool("yes", false, "Do not ask for confirmation of changes that cannot be undone")
			cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misused(cmd, explainMinus(err)) })
			for _, c := range commands {
				cmd.AddCommand(c.cobra())
			}
			needsCommand(cmd)
		},
	})
}

// command is a row of the table of commands. It has subcommands, a request with
// its printer, or a function that runs it.
type command struct {
	use         string // the word, then the arguments: <required> or [optional]
	short, long string
	subcommands []command
	flags       []flag

	request  string            // method and path; {argument} stands for the value of an argument
	paged    bool              // the answer is a page; pages are requested up to --limit
	question string            // for confirmation before the request; {argument} as in request
	edit     func(*call) error // changes the request; it runs before the question
	print    printer

	run func(*call) error // replaces the request
}

// flag is a flag of a command. Arguments and flags become members of the request: of the
// JSON body, or of the query if the method is GET.
type flag struct {
	name  string
	value any // the default; its type is that of the flag
	help  string
	to    string                         // the member; default: the name with _ for -; "limits.x" is x within limits
	local bool                           // the flag is no member of the request
	parse func(*pflag.Flag) (any, error) // returns the value of the member, or nil to leave it out
}

var argument = regexp.MustCompile(`[<[](\w+)[]>]`)

// cobra returns the command as a Cobra command.
func (c *command) cobra() *cobra.Command {
	cmd := &cobra.Command{Use: c.use, Short: c.short, Long: c.long}
	if c.subcommands != nil {
		for _, sub := range c.subcommands {
			cmd.AddCommand(sub.cobra())
		}
		needsCommand(cmd)
		return cmd
	}
	for _, f := range c.flags {
		f.add(cmd.Flags())
	}
	var names []string
	for _, found := range argument.FindAllStringSubmatch(c.use, -1) {
		names = append(names, found[1])
	}
	optional := strings.Contains(c.use, "[")
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		switch {
		case optional && len(given) > len(names):
			return misused(cmd, fmt.Errorf("too many arguments: %d; allowed: at most %d", len(given), len(names)))
		case !optional && len(given) != len(names):
			return misused(cmd, fmt.Errorf("wrong number of arguments: %d; allowed: %d", len(given), len(names)))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		run := &call{Command: cmd, row: c, args: make(map[string]string)}
		for i, value := range given {
			run.args[names[i]] = value
		}
		do := c.run
		if do == nil {
			do = (*call).request
		}
		err := do(run)
		if coded, ok := errors.AsType[errExit](err); ok && coded.code != exitFailed {
			return exit(cmd, coded.code, err)
		}
		cmd.SilenceUsage = err != nil
		return err
	}
	return cmd
}

func (f *flag) add(flags *pflag.FlagSet) {
	switch value := f.value.(type) {
	case string:
		flags.String(f.name, value, f.help)
	case bool:
		flags.Bool(f.name, value, f.help)
	case int64:
		flags.Int64(f.name, value, f.help)
	case uint64:
		flags.Uint64(f.name, value, f.help)
	case []string:
		flags.StringSlice(f.name, value, f.help)
	}
}

// needsCommand makes a command fail if it is called without a subcommand.
func needsCommand(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return misused(cmd, fmt.Errorf("unknown command %q", args[0]))
		}
		return misused(cmd, errors.New("a command is missing"))
	}
}

// Exit codes, as docs/reference/cli.md lists them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitUnreachable = 5
)

// errExit is the error of a command that ends with a code other than 1.
type errExit struct {
	code int
	err  error
}

func (e errExit) Error() string { return e.err.Error() }
func (e errExit) Unwrap() error { return e.err }

// errUsage returns the error for wrong arguments or flags.
func errUsage(format string, args ...any) error {
	return errExit{exitUsage, fmt.Errorf(format, args...)}
}

// exit ends a command with a code above 1. Only Caddy can create an error with such a
// code, so exit calls Caddy's wrapper.
func exit(cmd *cobra.Command, code int, err error) error {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.Root().SilenceErrors, cmd.Root().SilenceUsage = true, true
	fmt.Fprintln(cmd.ErrOrStderr(), "Error: "+err.Error())
	return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return code, nil })(cmd, nil)
}

// misused ends a command with wrong arguments or flags, and prints its usage.
func misused(cmd *cobra.Command, err error) error {
	err = exit(cmd, exitUsage, err)
	fmt.Fprint(cmd.ErrOrStderr(), cmd.UsageString())
	return err
}

// explainMinus explains the error for a negative number, which Cobra reads as a flag. It
// returns other errors unchanged.
func explainMinus(err error) error {
	var unknown interface{ GetSpecifiedShortnames() string }
	if errors.As(err, &unknown) {
		if word := unknown.GetSpecifiedShortnames(); word != "" && slices.Contains([]byte("0123456789"), word[0]) {
			return fmt.Errorf("-%s is not a flag: amounts and numbers must not be negative; use debit to take money", word)
		}
	}
	return err
}
