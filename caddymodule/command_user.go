package caddymodule

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/internal/identity"
)

func userCommands() []*cobra.Command {
	token := command("token <user>", "Makes the access token of a user, for programs that use the console, and shows it, this once; the one before ends", tokenOfUser)
	token.Flags().Bool("revoke", false, "Only end the one there is")
	return []*cobra.Command{
		command("create <name>", "Creates a user", func(cmd *cobra.Command, args []string) error {
			return onUsers(cmd, http.MethodPost, "/modelgate/users", map[string]string{"name": args[0]})
		}),
		command("list", "Lists the users", listUsers),
		command("show <user>", "Shows a user", func(cmd *cobra.Command, args []string) error {
			return onUsers(cmd, http.MethodGet, userPath(args[0], ""), nil)
		}),
		limitCommand("limit <user>", "Limits what a user may take with all keys together", func(cmd *cobra.Command, user, method string, in any) error {
			return onUsers(cmd, method, userPath(user, "/limits"), in)
		}),
		token,
		command("disable <user>", "Shuts a user out, with all keys and the access token, from the next request on", func(cmd *cobra.Command, args []string) error {
			return onUsers(cmd, http.MethodPost, userPath(args[0], "/disable"), nil)
		}),
		command("enable <user>", "Lets a disabled user in again", func(cmd *cobra.Command, args []string) error {
			return onUsers(cmd, http.MethodPost, userPath(args[0], "/enable"), nil)
		}),
	}
}

func userPath(user, what string) string { return "/modelgate/users/" + url.PathEscape(user) + what }

// onUsers sends a request whose answer is a user, and prints him.
func onUsers(cmd *cobra.Command, method, path string, in any) error {
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	var user identity.User
	if err := c.call(cmd.Context(), method, path, in, &user); err != nil {
		return err
	}
	return printed(cmd, user, func(w io.Writer) { printUsers(w, user) })
}

func tokenOfUser(cmd *cobra.Command, args []string) error {
	revoke, _ := cmd.Flags().GetBool("revoke")
	method := http.MethodPost
	if revoke {
		method = http.MethodDelete
		if err := confirmed(cmd, fmt.Sprintf("Revoke the access token of %s for good?", args[0])); err != nil {
			return err
		}
	}
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	var token shownToken
	if err := c.call(cmd.Context(), method, userPath(args[0], "/token"), nil, &token); err != nil {
		return err
	}
	return printed(cmd, token, func(w io.Writer) {
		if revoke {
			fmt.Fprintf(w, "%s has no access token now.\n", args[0])
			return
		}
		fmt.Fprintf(w, "The access token, shown this once:\n\n%s\n", token.Secret)
	})
}

func listUsers(cmd *cobra.Command, _ []string) error {
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	var list struct {
		Items []identity.User `json:"items"`
	}
	if err := c.call(cmd.Context(), http.MethodGet, "/modelgate/users", nil, &list); err != nil {
		return err
	}
	return printed(cmd, list, func(w io.Writer) { printUsers(w, list.Items...) })
}

func printUsers(w io.Writer, users ...identity.User) {
	fmt.Fprintln(w, "ID\tNAME\tCREATED\tTOKEN\tLIMITS\tSTATE")
	for _, u := range users {
		state, token := "active", "-"
		if u.Disabled {
			state = "disabled"
		}
		if u.Token != nil {
			token = u.Token.Hint
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", u.ID, u.Name, moment(u.Created), token, u.Limits, state)
	}
}
