package epay

import (
	"crypto/md5" //nolint:gosec // required by the protocol
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// separator separates the signed parameters. They are not escaped, so a value
// with a separator has the signature of two parameters. A user could have such
// a value signed in an order, for example in its title, and then present it as
// a notice of its payment. Therefore separators are not allowed in values, when
// signing and when verifying.
const separator = "&"

// unsigned are the parameters without a signature.
var unsigned = map[string]bool{"sign": true, "sign_type": true}

// sign returns the signature of parameters: the lower case MD5 of all with a
// value, sorted by name, as name=value with the separator between them and the
// key after the last.
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

// ambiguous reports whether other parameters could have the same signature: if
// a name has a separator or an equals sign, or a value a separator.
func ambiguous(params map[string]string) bool {
	for name, value := range params {
		if strings.ContainsAny(name, "=&") || strings.Contains(value, separator) {
			return true
		}
	}
	return false
}
