package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/pflag"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
)

// This file has the parsers of flags, and the functions that change a request for flags
// that are not members of it.

func parseReason(f *pflag.Flag) (any, error) {
	if f.Value.String() == "" {
		return nil, errUsage("--reason is required; it is recorded")
	}
	return f.Value.String(), nil
}

// notEmpty returns an error for an empty value. It would mean no bound, but a script with
// an unset variable does not intend that.
func notEmpty(f *pflag.Flag) (any, error) {
	switch {
	case !f.Changed:
		return nil, nil
	case strings.Trim(f.Value.String(), "[]\", ") == "":
		return nil, errUsage("--%s is empty; omit it for no bound", f.Name)
	}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice(), nil
	}
	return f.Value.String(), nil
}

// parseExpiry reads a duration from now, or a time, as Unix seconds.
func parseExpiry(f *pflag.Flag) (any, error) {
	if given, err := notEmpty(f); given == nil {
		return nil, err
	}
	word, now := f.Value.String(), time.Now()
	t, err := time.Parse(time.RFC3339, word)
	if d, notDuration := caddy.ParseDuration(word); notDuration == nil {
		t, err = now.Add(d), nil
	}
	switch {
	case err != nil:
		return nil, errUsage("--expires %q is not supported; allowed: a duration such as 30d, or a time such as 2027-01-31T00:00:00Z", word)
	case !t.After(now):
		return nil, errUsage("--expires %q is not in the future", word)
	}
	return t.Unix(), nil
}

// parseGrace reads a duration as seconds.
func parseGrace(f *pflag.Flag) (any, error) {
	grace, err := caddy.ParseDuration(f.Value.String())
	if err != nil || grace < 0 || grace > identity.MaxGrace {
		return nil, errUsage("--grace %q is not supported; allowed: a duration such as 24h, at most 30d", f.Value)
	}
	return int64(grace / time.Second), nil
}

func parseBudget(f *pflag.Flag) (any, error) {
	if !f.Changed {
		return nil, nil
	}
	budget, err := money.Parse(f.Value.String())
	if err != nil {
		return nil, errUsage("--budget %v", err)
	}
	return budget, nil
}

func parseReset(f *pflag.Flag) (any, error) {
	if !f.Changed {
		return nil, nil
	}
	reset, err := calendar.ParseReset(f.Value.String())
	if err != nil || f.Value.String() == "" {
		return nil, errUsage("--reset %q is not supported; allowed: never, day, week, month", f.Value)
	}
	return reset, nil
}

// changeLimits removes all limits if --none is set.
func changeLimits(c *call) error {
	given := len(c.members) > 0
	switch none := c.isSet("none"); {
	case none && given:
		return errUsage("--none removes all limits; it excludes other limits")
	case none:
		c.method = http.MethodDelete
	case !given:
		return errUsage("a limit is missing; --none removes all limits")
	}
	return nil
}

// revokeToken revokes the access token if --revoke is set, instead of creating one.
func revokeToken(c *call) error {
	if c.isSet("revoke") {
		c.method, c.question = http.MethodDelete, fmt.Sprintf("Revoke the access token of %s for good?", c.args["user"])
	}
	return nil
}

func numberPlan(c *call) error {
	plan, err := strconv.ParseInt(c.args["plan"], 10, 64)
	if err != nil {
		return errUsage("<plan> %q is not a number; allowed: the id of a plan", c.args["plan"])
	}
	delete(c.members, "plan")
	c.members["plan_id"] = plan
	return nil
}

func oneForm(c *call) error {
	if c.isSet("csv") && c.isSet("json") {
		return errUsage("--csv and --json exclude each other")
	}
	return nil
}

// maxPasswordLine bounds the line with the password, in bytes.
const maxPasswordLine = 4 << 10

// addPassword adds the first line of a file or of standard input, with its white space.
// A password is not an argument, because every process of the machine can read arguments.
func addPassword(c *call) error {
	stdin, in := c.isSet("password-stdin"), c.InOrStdin()
	switch file := c.Flags().Lookup("password-file"); {
	case !stdin && !file.Changed:
		return nil
	case stdin && file.Value.String() != "":
		return errUsage("--password-file and --password-stdin exclude each other")
	case !stdin:
		opened, err := os.Open(file.Value.String())
		if err != nil {
			return errUsage("--password-file: %v", err)
		}
		defer opened.Close()
		in = opened
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPasswordLine))
	if err != nil {
		return fmt.Errorf("reading the password: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return errUsage("the password is empty")
	}
	c.members["password"] = line
	return nil
}
