package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
)

func userCommands() []*cobra.Command {
	token := command("token <user>", "Makes the access token of a user, for programs that use the console, and shows it, this once; the one before ends", tokenOfUser)
	token.Flags().Bool("revoke", false, "Only end the one there is")
	create := command("create <name>", "Creates a user; with a password he can log in", createUser)
	create.Flags().String("password-file", "", "Read the password from this file: its first line")
	create.Flags().Bool("password-stdin", false, "Read the password from standard input: its first line")
	return []*cobra.Command{
		create,
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
		command("reset-password <user>", "Makes a one-time code by which a user sets a new password, and shows it, this once", resetPassword),
		command("reset-2fa <user>", "Takes the authenticator app, the backup codes and the passkeys of a user away, and the count of his failures", func(cmd *cobra.Command, args []string) error {
			return onAccess(cmd, http.MethodDelete, args[0], "/factors",
				fmt.Sprintf("Take all second factors of %s away? Whoever has his password then gets in.", args[0]),
				"has no second factor now")
		}),
		command("unblock <user>", "Forgives the failures of a user, by which codes, log-ins and the password are held up, and what he has changed today", func(cmd *cobra.Command, args []string) error {
			return onAccess(cmd, http.MethodPost, args[0], "/unblock", "", "may try again; a password and factors stay as they are")
		}),
		command("sign-out <user>", "Ends all sessions of a user; an access token is ended by token --revoke", func(cmd *cobra.Command, args []string) error {
			return onAccess(cmd, http.MethodPost, args[0], "/sign-out", "", "is signed out everywhere")
		}),
		command("enable <user>", "Lets a disabled user in again", func(cmd *cobra.Command, args []string) error {
			return onUsers(cmd, http.MethodPost, userPath(args[0], "/enable"), nil)
		}),
	}
}

func userPath(user, what string) string { return "/modelgate/users/" + url.PathEscape(user) + what }

// onUsers sends a request whose answer is a user, and prints the user.
func onUsers(cmd *cobra.Command, method, path string, in any) error {
	return request(cmd, method, path, in, func(w io.Writer, user *adminapi.User) { printUsers(w, *user) })
}

// createUser makes a user. A password comes from a file or from standard input:
// among the arguments everybody on the machine could read it.
func createUser(cmd *cobra.Command, args []string) error {
	in := map[string]string{"name": args[0]}
	file, _ := cmd.Flags().GetString("password-file")
	stdin, _ := cmd.Flags().GetBool("password-stdin")
	if cmd.Flags().Changed("password-file") || stdin {
		password, err := passwordFrom(cmd, file, stdin)
		if err != nil {
			return err
		}
		in["password"] = password
	}
	return onUsers(cmd, http.MethodPost, "/modelgate/users", in)
}

// longestLine bounds what is read as a password, in bytes.
const longestLine = 4 << 10

// passwordFrom reads the first line of a file or of standard input. White space
// within it is part of the password.
func passwordFrom(cmd *cobra.Command, file string, stdin bool) (string, error) {
	in := cmd.InOrStdin()
	switch {
	case stdin && file != "":
		return "", errUsage("--password-file and --password-stdin exclude each other")
	case !stdin:
		opened, err := os.Open(file)
		if err != nil {
			return "", errUsage("--password-file: %v", err)
		}
		defer opened.Close()
		in = opened
	}
	text, err := io.ReadAll(io.LimitReader(in, longestLine))
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", errUsage("the password is empty")
	}
	return line, nil
}

// onAccess changes by what a user comes in, and says what holds now.
func onAccess(cmd *cobra.Command, method, user, what, question, now string) error {
	if question != "" {
		if err := confirmed(cmd, question); err != nil {
			return err
		}
	}
	return request(cmd, method, userPath(user, what), nil, func(w io.Writer, _ *struct{}) { fmt.Fprintf(w, "%s %s.\n", user, now) })
}

func resetPassword(cmd *cobra.Command, args []string) error {
	return request(cmd, http.MethodPost, userPath(args[0], "/reset-password"), nil, func(w io.Writer, code *adminapi.OneTimeCode) {
		fmt.Fprintf(w, "The code for %s, shown this once; it holds for 24 hours and ends with the next one:\n\n%s\n\nIt is sent with the new password to POST /api/user/password/reset.\n", args[0], code.Code)
	})
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
	return request(cmd, method, userPath(args[0], "/token"), nil, func(w io.Writer, token *adminapi.AccessToken) {
		if revoke {
			fmt.Fprintf(w, "%s has no access token now.\n", args[0])
			return
		}
		fmt.Fprintf(w, "The access token, shown this once:\n\n%s\n", token.Secret)
	})
}

func listUsers(cmd *cobra.Command, _ []string) error {
	return request(cmd, http.MethodGet, "/modelgate/users", nil, func(w io.Writer, list *items[adminapi.User]) { printUsers(w, list.Items...) })
}

func printUsers(w io.Writer, users ...adminapi.User) {
	fmt.Fprintln(w, "ID\tNAME\tCREATED\tTOKEN\tFACTORS\tLIMITS\tSTATE")
	for _, u := range users {
		state, token := "active", "-"
		if u.Admin {
			state = "administrator"
		}
		if u.Disabled {
			state = "disabled"
		}
		if u.Token != nil {
			token = u.Token.Hint
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", u.ID, u.Name, moment(u.Created), token, factorNames(u.Factors), u.Limits, state)
	}
}

// factorNames names the factors, "-" when there are none.
func factorNames(f adminapi.Factors) string {
	var words []string
	if f.TOTP {
		words = append(words, fmt.Sprintf("totp+%d", f.BackupCodes))
	}
	if f.Passkeys > 0 {
		words = append(words, counted(f.Passkeys, "passkey", "passkeys"))
	}
	return dash(strings.Join(words, ", "))
}
