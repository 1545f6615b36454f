package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
)

// limitCommand makes the command that changes the limits of a kind of thing:
// send brings the change, or their removal, to the thing's own route.
func limitCommand(use, short string, send func(cmd *cobra.Command, thing, method string, in any) error) *cobra.Command {
	cmd := command(use, short+"; what is not given stays as it is", func(cmd *cobra.Command, args []string) error {
		change, err := limitsGiven(cmd)
		if err != nil {
			return err
		}
		none, _ := cmd.Flags().GetBool("none")
		switch nothing := change == (identity.LimitsChange{}); {
		case none && !nothing:
			return errUsage("--none takes all limits away and goes with no other")
		case none:
			return send(cmd, args[0], http.MethodDelete, nil)
		case nothing:
			return errUsage("no limit is given; --none takes all away")
		}
		return send(cmd, args[0], http.MethodPost, change)
	})
	addLimitFlags(cmd)
	cmd.Flags().Bool("none", false, "Take all limits away")
	return cmd
}

func addLimitFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.String("budget", "", "How much may be spent in each period of --reset, as 9.90; 0: no limit")
	flags.String("reset", "", "When the budget starts anew, in UTC: never, day, week or month (default: never)")
	flags.Int64("rps", 0, "How many calls may begin in a second; 0: no limit")
	flags.Int64("streams", 0, "How many streaming calls may be open at once; 0: no limit")
	flags.Int64("tpm", 0, "How many tokens may be used in a minute; 0: no limit")
}

// limitsGiven returns the limits that were given as flags. Their bounds are for
// the server to know.
func limitsGiven(cmd *cobra.Command) (change identity.LimitsChange, err error) {
	flags := cmd.Flags()
	if flags.Changed("budget") {
		word, _ := flags.GetString("budget")
		budget, err := money.Parse(word)
		if err != nil {
			return change, errUsage("--budget %v", err)
		}
		change.Budget = &budget
	}
	if flags.Changed("reset") {
		word, _ := flags.GetString("reset")
		reset, err := calendar.ParseReset(word)
		if err != nil || word == "" {
			return change, errUsage("--reset %q is not never, day, week or month", word)
		}
		change.Reset = &reset
	}
	for name, limit := range map[string]**int64{
		"rps": &change.RequestsPerSecond, "streams": &change.Streams, "tpm": &change.TokensPerMinute,
	} {
		if flags.Changed(name) {
			n, _ := flags.GetInt64(name)
			*limit = &n
		}
	}
	return change, nil
}
