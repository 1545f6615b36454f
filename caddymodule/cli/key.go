package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

func keyCommands() []*cobra.Command {
	create := command("create <user>", "Creates an API key for a user and shows it, this once", createKey)
	create.Flags().String("name", "", "What the key is for")
	create.Flags().StringSlice("models", nil, "Models it may use: names, or prefixes as claude-* (default: all)")
	create.Flags().StringSlice("ip-ranges", nil, "Addresses it may be used from, as 10.0.0.0/8 (default: all)")
	create.Flags().String("expires", "", "When it ends: a duration as 30d, or a time as 2027-01-31T00:00:00Z (default: never)")
	addLimitFlags(create)

	list := command("list", "Lists the API keys", listKeys)
	list.Flags().String("user", "", "Only those of this user")

	rotate := command("rotate <key>", "Gives a key a new secret and shows it, this once; id and scope stay", rotateKey)
	rotate.Flags().String("grace", "0s", "How long the old secret goes on working, at most 30d; one from a rotation before ends at once")

	limit := limitCommand("limit <key>", "Limits what a key may take", func(cmd *cobra.Command, key, method string, in any) error {
		return onKeys(cmd, method, keyPath(key, "/limits"), in)
	})

	return []*cobra.Command{
		create, list, limit, rotate,
		command("revoke <key>", "Ends a key for good, from the next request on", func(cmd *cobra.Command, args []string) error {
			if err := confirmed(cmd, fmt.Sprintf("Revoke key %s for good?", args[0])); err != nil {
				return err
			}
			return onKeys(cmd, http.MethodPost, keyPath(args[0], "/revoke"), nil)
		}),
	}
}

func createKey(cmd *cobra.Command, args []string) error {
	name, _ := cmd.Flags().GetString("name")
	models, _ := cmd.Flags().GetStringSlice("models")
	ranges, _ := cmd.Flags().GetStringSlice("ip-ranges")
	for _, flag := range []string{"models", "ip-ranges", "expires"} {
		// An empty one means no bound at all, which a script with an unset
		// variable does not mean.
		if f := cmd.Flags().Lookup(flag); f.Changed && strings.Trim(f.Value.String(), "[]\", ") == "" {
			return errUsage("--%s is empty; leave it out for no bound", flag)
		}
	}
	word, _ := cmd.Flags().GetString("expires")
	expires, err := parseExpiry(word, time.Now())
	if err != nil {
		return err
	}
	limits, err := limitsGiven(cmd)
	if err != nil {
		return err
	}
	return onKeys(cmd, http.MethodPost, "/modelgate/keys", map[string]any{
		"user": args[0], "name": name, "models": models, "ip_ranges": ranges, "expires": expires, "limits": limits,
	})
}

// parseExpiry reads a duration from now, or a time, as Unix seconds; the empty
// word is zero.
func parseExpiry(word string, now time.Time) (int64, error) {
	if word == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339, word)
	if d, notDuration := caddy.ParseDuration(word); notDuration == nil {
		t, err = now.Add(d), nil
	}
	switch {
	case err != nil:
		return 0, errUsage("--expires %q is neither a duration as 30d nor a time as 2027-01-31T00:00:00Z", word)
	case !t.After(now):
		return 0, errUsage("--expires %q does not lie in the future", word)
	}
	return t.Unix(), nil
}

func rotateKey(cmd *cobra.Command, args []string) error {
	word, _ := cmd.Flags().GetString("grace")
	grace, err := caddy.ParseDuration(word)
	if err != nil || grace < 0 || grace > identity.MaxGrace {
		return errUsage("--grace %q is no duration such as 24h, of at most 30d", word)
	}
	return onKeys(cmd, http.MethodPost, keyPath(args[0], "/rotate"), map[string]int64{"grace": int64(grace / time.Second)})
}

func keyPath(key, what string) string { return "/modelgate/keys/" + url.PathEscape(key) + what }

// onKeys sends a request whose answer is a key, and prints it.
func onKeys(cmd *cobra.Command, method, path string, in any) error {
	return request(cmd, method, path, in, func(w io.Writer, key *adminapi.Key) {
		printKeys(w, *key)
		if key.Secret != "" {
			fmt.Fprintf(w, "\nThe key, shown this once:\n\n%s\n", key.Secret)
		}
	})
}

func listKeys(cmd *cobra.Command, _ []string) error {
	user, _ := cmd.Flags().GetString("user")
	return request(cmd, http.MethodGet, "/modelgate/keys?user="+url.QueryEscape(user), nil, func(w io.Writer, list *items[adminapi.Key]) {
		printKeys(w, list.Items...)
	})
}

func printKeys(w io.Writer, keys ...adminapi.Key) {
	fmt.Fprintln(w, "ID\tUSER\tNAME\tKEY\tMODELS\tFROM\tLIMITS\tEXPIRES\tSTATE")
	now := time.Now().Unix()
	for _, k := range keys {
		// The scope is that of the operator; that of the owner stands beside it.
		expires := identity.Key{Scope: k.Scope, Operator: k.Owner}.ExpiresAt()
		state := "active"
		switch {
		case k.Revoked != 0:
			state = "revoked " + moment(k.Revoked)
		case expires != 0 && expires <= now:
			state = "expired"
		case k.PreviousUntil > now:
			state = "active; the secret before until " + moment(k.PreviousUntil)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, cmp.Or(k.UserName, k.UserID), dash(k.Name), k.Hint,
			andOwner(all(words(k.Models)), words(k.Owner.Models)), andOwner(all(words(k.Ranges)), words(k.Owner.Ranges)),
			andOwner(k.Limits.String(), ownLimits(k.Owner.Limits)), moment(expires), state)
	}
}

// andOwner writes what the operator has set, and behind it what the owner has, if
// anything.
func andOwner(operator string, owner []string) string {
	if len(owner) == 0 {
		return operator
	}
	return operator + " (owner: " + strings.Join(owner, ",") + ")"
}

func ownLimits(limits identity.Limits) []string {
	if limits == (identity.Limits{}) {
		return nil
	}
	return []string{limits.String()}
}

func words[T any](values []T) []string {
	out := make([]string, len(values))
	for i, value := range values {
		out[i] = fmt.Sprint(value)
	}
	return out
}

func all(words []string) string {
	if len(words) == 0 {
		return "all"
	}
	return strings.Join(words, ",")
}

// dash writes a word for a table: none as a dash, and quoted where something in it
// cannot be seen. Names of today have no such thing; records of before may.
func dash(word string) string {
	switch {
	case word == "":
		return "-"
	case !utf8.ValidString(word), strings.ContainsFunc(word, func(c rune) bool { return !unicode.IsPrint(c) }):
		return strconv.Quote(word)
	}
	return word
}
