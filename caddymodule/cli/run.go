package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/query"
)

// call is one run of a command, with its arguments by name and its request.
type call struct {
	*cobra.Command

	row  *command
	args map[string]string

	method, path string
	members      map[string]any // of the body or the query
	question     string
}

func (c *call) flag(name string) string { return c.Flags().Lookup(name).Value.String() }
func (c *call) isSet(name string) bool  { return c.flag(name) == "true" }

// request sends the request of the row and prints its answer.
func (c *call) request() error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.confirm(); err != nil {
		return err
	}
	client, err := newClient(c.Command)
	if err != nil {
		return err
	}
	if c.row.paged {
		return c.requestPages(client)
	}
	var answer json.RawMessage
	path, body := c.target()
	if err := client.call(c.Context(), c.method, path, body, &answer); err != nil {
		return err
	}
	return c.printed(answer, c.row.print)
}

// prepare sets the request from the arguments and the flags.
func (c *call) prepare() error {
	c.method, c.path, _ = strings.Cut(c.row.request, " ")
	c.question, c.members = c.row.question, make(map[string]any)
	for name, value := range c.args {
		placeholder := "{" + name + "}"
		c.question = strings.ReplaceAll(c.question, placeholder, value)
		if path := strings.ReplaceAll(c.path, placeholder, url.PathEscape(value)); path != c.path {
			c.path = path
			continue
		}
		c.members[name] = value
	}
	for _, f := range c.row.flags {
		if f.local {
			continue
		}
		value, err := f.member(c.Flags().Lookup(f.name))
		if err != nil {
			return err
		}
		if value == nil {
			continue
		}
		name := cmp.Or(f.to, strings.ReplaceAll(f.name, "-", "_"))
		into := c.members
		if outer, inner, nested := strings.Cut(name, "."); nested {
			if into[outer] == nil {
				into[outer] = make(map[string]any)
			}
			into, name = into[outer].(map[string]any), inner
		}
		into[name] = value
	}
	if c.row.edit != nil {
		return c.row.edit(c)
	}
	return nil
}

// member returns the value of a flag in the request; nil if the flag was not given and has
// no default.
func (f *flag) member(given *pflag.Flag) (any, error) {
	if f.parse != nil {
		return f.parse(given)
	}
	word := given.Value.String()
	if !given.Changed && (word == "" || word == "0" || word == "[]") {
		return nil, nil
	}
	switch f.value.(type) {
	case int64, uint64:
		return json.Number(word), nil
	case []string:
		return given.Value.(pflag.SliceValue).GetSlice(), nil
	}
	return word, nil
}

// target returns the path with its query, and the body.
func (c *call) target() (path string, body any) {
	switch {
	case len(c.members) == 0:
		return c.path, nil
	case c.method != http.MethodGet:
		return c.path, c.members
	}
	query := make(url.Values)
	for name, value := range c.members {
		if list, ok := value.([]string); ok {
			query[name] = list
			continue
		}
		query.Set(name, fmt.Sprint(value))
	}
	return c.path + "?" + query.Encode(), nil
}

// confirm asks the question of the command, unless --yes was given.
func (c *call) confirm() error {
	if c.question == "" || c.isSet("yes") {
		return nil
	}
	fmt.Fprint(c.ErrOrStderr(), c.question+" [y/N] ")
	answer, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	fmt.Fprintln(c.ErrOrStderr())
	return errExit{exitRefused, errors.New("not confirmed; answer y, or use --yes")}
}

// requestPages requests pages up to --limit and prints them as one list. Filters may leave
// a page empty, so the list ends only if there is no next page.
func (c *call) requestPages(client *client) error {
	limit, _ := c.Flags().GetInt64("limit")
	if limit < 1 || limit > query.MaxLines {
		return errUsage("--limit %d is not supported; allowed: 1 to %d", limit, query.MaxLines)
	}
	list := adminapi.Page[json.RawMessage]{Items: []json.RawMessage{}, Next: c.flag("after")}
	for first := true; first || list.Next != "" && len(list.Items) < int(limit); first = false {
		c.members["after"] = list.Next
		c.members["limit"] = strconv.Itoa(min(int(limit)-len(list.Items), query.MaxPage))
		path, _ := c.target()
		var page adminapi.Page[json.RawMessage]
		if err := client.call(c.Context(), c.method, path, nil, &page); err != nil {
			return err
		}
		list.Items, list.Next = append(list.Items, page.Items...), page.Next
	}
	return c.printed(list, both(c.row.print, decoded(func(w *tabwriter.Writer, page *adminapi.Page[json.RawMessage]) {
		if page.Next != "" {
			fmt.Fprintf(w, "There are more: --after %s\n", page.Next)
		}
	})))
}

// printed prints an answer: with --json as one line of JSON, else with the printer.
func (c *call) printed(answer any, print printer) error {
	raw, err := dialect.JSON(answer)
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	if c.isSet("json") {
		_, err := fmt.Fprintf(out, "%s\n", raw)
		return err
	}
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	if err := print(table, c, raw); err != nil {
		return err
	}
	return table.Flush()
}
