package password

import (
	_ "embed"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// The length of a password: code points, as NIST SP 800-63B counts them, and
// bytes.
const (
	minLength = 8
	maxLength = 128
	maxBytes  = 1024
)

// common are the most common passwords, one per line, in lower case: the leaked passwords of the
// usual lists that are long enough.
//
//go:embed common.txt
var common string

// Check refuses a new password that is too short, too long, or easy to guess: a common one, or a name
// of the user. A password is taken as it was typed: it is not trimmed, folded or normalised, neither
// here nor when it is hashed.
func Check(password string, names ...string) *fault.Fault {
	n := utf8.RuneCountInString(password)
	switch {
	case password == "":
		return fault.At(fault.MissingParameter, "password", "a password is required")
	case !utf8.ValidString(password):
		return fault.At(fault.InvalidParameter, "password", "a password is text in UTF-8")
	case n < minLength || n > maxLength || len(password) > maxBytes:
		return fault.At(fault.InvalidParameter, "password", "a password has %d to %d characters, this has %d", minLength, maxLength, n)
	case isCommon(password):
		return fault.At(fault.InvalidParameter, "password", "this password is among the first that are guessed; take another")
	case slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(password, name) }):
		return fault.At(fault.InvalidParameter, "password", "a password is not the name of its user")
	}
	return nil
}

// isCommon reports whether a password is on the list, in any case, or repeats one character.
func isCommon(password string) bool {
	first, _ := utf8.DecodeRuneInString(password)
	if strings.Trim(password, string(first)) == "" {
		return true
	}
	return strings.Contains(common, "\n"+strings.ToLower(password)+"\n") && !strings.Contains(password, "\n")
}
