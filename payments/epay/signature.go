package epay

import (
	"crypto/md5" //nolint:gosec // required by the protocol
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// separator separates the signed parameters. They are not escaped, so a value with a separator has
// the same signature as two parameters. A user could get such a value signed in an order, for example
// in its title, and then send it as a notice of the payment. So values must not contain separators,
// neither for signing nor for verifying.
const separator = "&"

// unsigned are the parameters that are not signed.
var unsigned = map[string]bool{"sign": true, "sign_type": true}

// sign returns the signature of parameters: the MD5, in lower case, of all that have a value. They
// are sorted by name, written as name=value and joined by the separator. The key follows the last
// one.
func sign(params map[string]string, key string) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if unsigned[name] || params[name] == "" {
			continue
		}
		if text.Len() > 0 {
			text.WriteString(separator)
		}
		text.WriteString(name + "=" + params[name])
	}
	text.WriteString(key)
	sum := md5.Sum([]byte(text.String())) //nolint:gosec // required by the protocol
	return hex.EncodeToString(sum[:])
}

// ambiguous reports whether other parameters could have the same signature. This is so if a name
// contains a separator or an equals sign, or a value contains a separator.
func ambiguous(params map[string]string) bool {
	for name, value := range params {
		if strings.ContainsAny(name, "=&") || strings.Contains(value, separator) {
			return true
		}
	}
	return false
}
