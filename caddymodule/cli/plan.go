package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/billing"
)

func planCommands() []*cobra.Command {
	return []*cobra.Command{command("list", "Lists the plans of the configuration", func(cmd *cobra.Command, _ []string) error {
		return request(cmd, http.MethodGet, "/modelgate/plans", nil, func(w io.Writer, list *items[billing.Plan]) {
			fmt.Fprintln(w, "ID\tTITLE\tPRICE\tQUOTA\tDURATION\tRESET\tLIMIT\tON SALE")
			for _, p := range list.Items {
				limit := "-"
				if p.PurchaseLimit > 0 {
					limit = strconv.FormatInt(p.PurchaseLimit, 10)
				}
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%t\n", p.ID, p.Title, p.Price, p.Quota, p.Duration, p.QuotaReset, limit, !p.Disabled)
			}
		})
	})}
}

func subscriptionCommands() []*cobra.Command {
	list := command("list", "Lists subscriptions", listSubscriptions)
	list.Flags().String("user", "", "Only those of this user")
	grant := command("grant <user> <plan>", "Gives a user a plan without charging him", grantPlan)
	grant.Flags().String("reason", "", "Why; it stands in the audit log")
	grant.Flags().String("idempotency-key", "", "A word of your own: with the same one this is done once")
	cancel := command("cancel <id>", "Ends a subscription now; what is left of its quota is lost", cancelSubscription)
	cancel.Flags().String("reason", "", "Why; it stands in the audit log")
	return []*cobra.Command{list, grant, cancel}
}

func listSubscriptions(cmd *cobra.Command, _ []string) error {
	user, _ := cmd.Flags().GetString("user")
	return request(cmd, http.MethodGet, "/modelgate/subscriptions?user="+url.QueryEscape(user), nil, func(w io.Writer, list *items[adminapi.Subscription]) {
		printSubscriptions(w, list.Items...)
	})
}

func printSubscriptions(w io.Writer, list ...adminapi.Subscription) {
	fmt.Fprintln(w, "ID\tUSER\tPLAN\tSTATUS\tQUOTA\tUSED\tHELD\tENDS\tRESETS")
	for _, s := range list {
		fmt.Fprintf(w, "%d\t%s\t%d %s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, cmp.Or(s.UserName, s.User), s.PlanID, s.Title, s.Status,
			s.QuotaTotal, s.QuotaUsed, s.QuotaHeld, moment(s.EndTime), moment(s.NextResetTime))
	}
}

// reasonOf returns the reason that every change by an operator is given.
func reasonOf(cmd *cobra.Command) (string, error) {
	reason, _ := cmd.Flags().GetString("reason")
	if reason == "" {
		return "", errUsage("--reason is required: why is this done?")
	}
	return reason, nil
}

func grantPlan(cmd *cobra.Command, args []string) error {
	plan, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return errUsage("a plan is named by its number, not %q", args[1])
	}
	reason, err := reasonOf(cmd)
	if err != nil {
		return err
	}
	key, _ := cmd.Flags().GetString("idempotency-key")
	in := map[string]any{"user": args[0], "plan_id": plan, "reason": reason, "idempotency_key": key}
	return request(cmd, http.MethodPost, "/modelgate/subscriptions", in, func(w io.Writer, receipt *billing.Receipt) {
		replayed(w, receipt.Replayed)
		printSubscriptions(w, adminapi.Subscription{Subscription: receipt.Subscription})
	})
}

func cancelSubscription(cmd *cobra.Command, args []string) error {
	reason, err := reasonOf(cmd)
	if err != nil {
		return err
	}
	if err := confirmed(cmd, fmt.Sprintf("End subscription %s for good?", args[0])); err != nil {
		return err
	}
	path := "/modelgate/subscriptions/" + url.PathEscape(args[0]) + "/cancel"
	return request(cmd, http.MethodPost, path, map[string]string{"reason": reason}, func(w io.Writer, ended *billing.Subscription) {
		printSubscriptions(w, adminapi.Subscription{Subscription: *ended})
	})
}
