package identity

import (
	_ "embed"
	"strings"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// The length of a password: code points, as NIST SP 800-63B counts them, and
// bytes.
const (
	minPassword      = 8
	maxPassword      = 128
	maxPasswordBytes = 1024
)

// commonPasswords are the passwords that are tried first, one a line, in lower
// case: those of the usual lists of leaked ones that would be long enough.
//
//go:embed common_passwords.txt
var commonPasswords string

// CheckPassword refuses a new password that is too short, too long, or among the
// first to be guessed for the user of this name; the name is empty where it is
// not known. A password is taken as it was typed: nothing is trimmed, folded or
// normalised, here or when it is hashed.
func CheckPassword(userName, password string) *fault.Fault {
	n := utf8.RuneCountInString(password)
	switch {
	case password == "":
		return fault.At(fault.MissingParameter, "password", "a password is required")
	case !utf8.ValidString(password):
		return fault.At(fault.InvalidParameter, "password", "a password is text in UTF-8")
	case n < minPassword || n > maxPassword || len(password) > maxPasswordBytes:
		return fault.At(fault.InvalidParameter, "password", "a password has %d to %d characters, this has %d", minPassword, maxPassword, n)
	case isCommon(password):
		return fault.At(fault.InvalidParameter, "password", "this password is among the first that are guessed; take another")
	}
	if folded, refusal := foldName(userName); refusal == nil && (strings.EqualFold(password, userName) || strings.EqualFold(password, folded)) {
		return fault.At(fault.InvalidParameter, "password", "a password is not the name of its user")
	}
	return nil
}

// isCommon tells whether a password is on the list, in any case, or one
// character over and over.
func isCommon(password string) bool {
	first, _ := utf8.DecodeRuneInString(password)
	if strings.Trim(password, string(first)) == "" {
		return true
	}
	return strings.Contains(commonPasswords, "\n"+strings.ToLower(password)+"\n") && !strings.Contains(password, "\n")
}
