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
	return []*cobra.Command{
		command("create <name>", "Creates a user", func(cmd *cobra.Command, args []string) error {
			return changeUser(cmd, "/modelgate/users", map[string]string{"name": args[0]})
		}),
		command("list", "Lists the users", listUsers),
		command("disable <user>", "Shuts a user out, with all keys, from the next request on", func(cmd *cobra.Command, args []string) error {
			return changeUser(cmd, "/modelgate/users/"+url.PathEscape(args[0])+"/disable", nil)
		}),
		command("enable <user>", "Lets a disabled user in again", func(cmd *cobra.Command, args []string) error {
			return changeUser(cmd, "/modelgate/users/"+url.PathEscape(args[0])+"/enable", nil)
		}),
	}
}

func changeUser(cmd *cobra.Command, path string, in any) error {
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	var user identity.User
	if err := c.call(cmd.Context(), http.MethodPost, path, in, &user); err != nil {
		return err
	}
	return printed(cmd, user, func(w io.Writer) { printUsers(w, user) })
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
	fmt.Fprintln(w, "ID\tNAME\tCREATED\tSTATE")
	for _, u := range users {
		state := "active"
		if u.Disabled {
			state = "disabled"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", u.ID, u.Name, moment(u.Created), state)
	}
}
