package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

func walletCommands() []*cobra.Command {
	ledger := command("ledger <user>", "Lists what has moved in a wallet, or in another account of a user, newest first", showLedger)
	ledger.Flags().String("account", "wallet", "Which: wallet; receivable, below zero by what is owed; or quota/<subscription>/<start of the period in Unix seconds>")
	ledger.Flags().Int("limit", 100, "How many lines")
	ledger.Flags().Uint64("skip", 0, "How many of the newest lines to leave out")
	return []*cobra.Command{
		command("show <user>", "Shows what a user has", func(cmd *cobra.Command, args []string) error {
			return request(cmd, http.MethodGet, walletPath(args[0], ""), nil, func(w io.Writer, answer *adminapi.Wallet) {
				fmt.Fprintf(w, "USER\tBALANCE\tHELD\tRESERVED\tOWED\n%s\t%s %s\t%s\t%s\t%s\n",
					answer.User, answer.Balance, answer.Currency, answer.Held, answer.Reserved, answer.Owed)
			})
		}),
		changeCommand("credit <user> <amount>", "Gives a user money"),
		changeCommand("debit <user> <amount>", "Takes money from a user; never more than is available"),
		changeCommand("clear <user>", "Ends a receivable: takes what the wallet has of it, writes off the rest, and lets the user spend again; both stand in ledger --account receivable"),
		ledger,
		command("mismatches", "Lists what payment services have signed and what fitted no order: it credited nothing", listMismatches),
	}
}

func listMismatches(cmd *cobra.Command, _ []string) error {
	return request(cmd, http.MethodGet, "/modelgate/mismatches", nil, func(w io.Writer, list *items[billing.Mismatch]) {
		fmt.Fprintln(w, "TIME\tPROVIDER\tKIND\tTRADE NO\tPAYMENT\tAMOUNT\tREASON")
		for _, m := range list.Items {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s %s\t%s\n", moment(m.Time/1000), m.Provider, m.Kind, m.TradeNo, m.Payment, m.Amount, m.Currency, m.Reason)
		}
	})
}

// changeCommand makes a command that changes a wallet. Each says why, and is done
// once for its idempotency key.
func changeCommand(use, short string) *cobra.Command {
	cmd := command(use, short, func(cmd *cobra.Command, args []string) error {
		reason, err := reasonOf(cmd)
		if err != nil {
			return err
		}
		key, _ := cmd.Flags().GetString("idempotency-key")
		in := map[string]string{"reason": reason, "idempotency_key": key}
		if len(args) > 1 {
			in["amount"] = args[1]
		}
		return request(cmd, http.MethodPost, walletPath(args[0], "/"+cmd.Name()), in, func(w io.Writer, change *billing.WalletChange) {
			replayed(w, change.Replayed)
			heads, cells := "AMOUNT\tBALANCE\tOWED", fmt.Sprintf("%s\t%s\t%s", change.Amount, change.Balance, change.Owed)
			if cmd.Name() == "clear" {
				heads, cells = heads+"\tWRITTEN OFF", cells+"\t"+change.WrittenOff.String()
			}
			fmt.Fprintf(w, "%s\n%s\n", heads, cells)
		})
	})
	cmd.Flags().String("reason", "", "Why; it stands in the ledger and in the audit log")
	cmd.Flags().String("idempotency-key", "", "A word of your own: with the same one this is done once")
	return cmd
}

func walletPath(user, what string) string { return "/modelgate/wallets/" + url.PathEscape(user) + what }

func showLedger(cmd *cobra.Command, args []string) error {
	limit, _ := cmd.Flags().GetInt("limit")
	skip, _ := cmd.Flags().GetUint64("skip")
	type answer struct {
		Items []ledger.EntryInfo `json:"items"`
		Total uint64             `json:"total"`
	}
	account, _ := cmd.Flags().GetString("account")
	what := fmt.Sprintf("/ledger?limit=%d&skip=%d&account=%s", limit, skip, url.QueryEscape(account))
	return request(cmd, http.MethodGet, walletPath(args[0], what), nil, func(w io.Writer, lines *answer) {
		fmt.Fprintln(w, "TIME\tKIND\tAMOUNT\tHELD\tBALANCE\tREFERENCE\tREASON")
		for _, line := range lines.Items {
			reference := line.Reference
			if line.Count > 0 {
				reference = counted(line.Count, "settlement", "settlements")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", moment(line.Time), line.Kind, line.Amount, line.Held, line.Balance, reference, line.Reason)
		}
		if shown := skip + uint64(len(lines.Items)); len(lines.Items) > 0 && shown < lines.Total {
			fmt.Fprintf(w, "There are more: --skip %d\n", shown)
		}
	})
}
