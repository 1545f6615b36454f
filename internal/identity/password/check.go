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

// common has the most common passwords that are long enough, one per line, in lower case. They are
// from lists of leaked passwords.
//
//go:embed common.txt
var common string

// Check refuses a new password that is too short, too long, or easy to guess: a common one, or a name
// of the user. A password is used as it was typed: it is never trimmed, folded or normalised.
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
		return fault.At(fault.InvalidParameter, "password", "this password is too common; choose another")
	case slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(password, name) }):
		return fault.At(fault.InvalidParameter, "password", "a password must not be the user name")
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
