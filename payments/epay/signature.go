package epay

import (
	"crypto/md5" //nolint:gosec // the protocol's own
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// separator stands between the parameters that are signed. They are not
// escaped, so that a value with a separator in it would have the signature of
// two parameters: one that a person had signed into an order, in its title for
// example, could be shown again as a notice of its payment. Therefore neither
// what we sign nor what we read has one.
const separator = "&"

// unsigned are the parameters that the signature does not cover.
var unsigned = map[string]bool{"sign": true, "sign_type": true}

// sign returns the signature of parameters: the MD5 in lower case of those
// that have a value, sorted by name, as name=value with the separator between
// them and the key right after the last.
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
	sum := md5.Sum([]byte(text.String())) //nolint:gosec // the protocol's own
	return hex.EncodeToString(sum[:])
}

// ambiguous tells whether parameters could be signed like others: a name with a
// separator or an equals sign in it, or a value with a separator.
func ambiguous(params map[string]string) bool {
	for name, value := range params {
		if strings.ContainsAny(name, "=&") || strings.Contains(value, separator) {
			return true
		}
	}
	return false
}
