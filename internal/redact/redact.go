// Package redact finds credentials in texts for logs: by the name of a value ([Name]) and by
// its form ([Text]). It imports no package of this module.
//
// The rules may replace text that is not a credential. They must not miss a credential.
package redact

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// Replacement replaces each credential.
const Replacement = "REDACTED"

// endings are the endings of the names of credentials, in the singular and
// without separators.
var endings = []string{
	"key", "token", "secret", "password", "passwd", "pwd", "passphrase", "signature", "sign", "sig", "auth", "authorization",
	"credential", "cookie", "cookie2", "jwt", "assertion", "sessionid", "session", "otp",
}

// code is an additional ending for parameters, such as a log-in code.
const code = "code"

// harmless are endings of names that look like those of credentials but are
// not: numbers of tokens, and public codes.
var harmless = []string{
	"idempotencykey", "maxtokens", "mintokens", "inputtokens", "outputtokens", "totaltokens", "prompttokens", "completiontokens",
	"reasoningtokens", "cachedtokens", "budgettokens",
	"statuscode", "errorcode", "exitcode", "countrycode", "languagecode", "currencycode", "postalcode", "zipcode",
}

// tokenPrefixes are the prefixes of API keys, access tokens and the secrets of payment
// services and webhooks.
var tokenPrefixes = []string{"sk-", "sk_", "rk_", "mgat_", "whsec_"}

// minTokenLength is the minimum number of characters after such a prefix.
const minTokenLength = 8

// endingsBy has the endings by their last two characters, as computed by index. Most
// names end with none of these characters.
var endingsBy = func() (by [128 * 128][]string) {
	for _, one := range endings {
		for _, ending := range []string{one, one + "s"} {
			last := index(ending[len(ending)-2], ending[len(ending)-1])
			by[last] = append(by[last], ending)
		}
	}
	return by
}()

// index returns the index in endingsBy for these last two characters.
func index(last, final byte) int { return int(last)<<7 | int(final) }

// Name reports whether a header, a query parameter or a cookie of this name
// contains a credential. It ignores case and separators.
func Name(name string) bool { return isCredentialName(name, "") }

// isCredentialName is Name with an additional ending more, unless that is empty.
func isCredentialName(name, more string) bool {
	var last [2]byte
	for i, n := len(name)-1, 1; i >= 0 && n >= 0; i-- {
		if isAlphanumeric(name[i]) {
			last[n] = lower(name[i])
			n--
		}
	}
	candidates := endingsBy[index(last[0], last[1])]
	if candidates == nil && (more == "" || last != [2]byte([]byte(more)[len(more)-2:])) {
		return false
	}
	var buf [64]byte
	normalized := buf[:0]
	for i := range len(name) {
		if isAlphanumeric(name[i]) {
			normalized = append(normalized, lower(name[i]))
		}
	}
	ends := func(ending string) bool { return bytes.HasSuffix(normalized, []byte(ending)) }
	return (slices.ContainsFunc(candidates, ends) || more != "" && ends(more)) && !slices.ContainsFunc(harmless, ends)
}

// lower returns a letter or digit in lower case.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// maxLayers is the number of layers of percent-encoding that are decoded.
const maxLayers = 4

// Text returns a text with its credentials replaced. They are the values of pairs name=value,
// as in the query of a URL, whose name is that of a credential. They are also the user and
// the password of a URL, the text after Bearer, and text in the form of an API key. If a
// credential is found only after percent-decoding, the decoded text is returned. The time is
// linear in the length of the text.
func Text(text string) string {
	text = redactOnce(text)
	decoded := text
	for range maxLayers {
		next := decode(decoded)
		if next == decoded {
			break
		}
		if decoded = redactOnce(next); decoded != next {
			text = decoded
		}
	}
	return text
}

// redactOnce is Text without percent-decoding.
func redactOnce(text string) string {
	if strings.IndexByte(text, '=') >= 0 {
		text = redactPairs(text)
	}
	if strings.Contains(text, scheme) {
		text = redactUserinfo(text)
	}
	return redactTokens(text)
}

// redactPairs replaces the values of pairs whose names are those of credentials.
func redactPairs(text string) string {
	var out strings.Builder
	written := 0 // of text
	for at := 0; at < len(text); at++ {
		if text[at] != '=' {
			continue
		}
		begin := at
		for begin > written && inName(text[begin-1]) {
			begin--
		}
		if begin == at || !isCredentialName(text[begin:at], code) {
			continue
		}
		end := at + 1
		for end < len(text) && inValue(text[end]) {
			end++
		}
		if end == at+1 {
			continue
		}
		out.WriteString(text[written : at+1])
		out.WriteString(Replacement)
		written, at = end, end-1
	}
	return finish(&out, text, written)
}

// scheme separates the scheme of a URL from its authority.
const scheme = "://"

// redactUserinfo replaces the user and the password of a URL.
func redactUserinfo(text string) string {
	var out strings.Builder
	written := 0 // of text
	for {
		at := strings.Index(text[written:], scheme)
		if at < 0 {
			return finish(&out, text, written)
		}
		begin := written + at + len(scheme)
		end := begin
		for end < len(text) && inValue(text[end]) && text[end] != '/' && text[end] != '?' && text[end] != '\\' {
			end++
		}
		out.WriteString(text[written:begin])
		if host := strings.LastIndexByte(text[begin:end], '@'); host > 0 {
			out.WriteString(Replacement)
			begin += host
		}
		written = begin
	}
}

// finish returns the text written so far, and the rest of the original text.
func finish(out *strings.Builder, text string, written int) string {
	if out.Len() == 0 {
		return text
	}
	out.WriteString(text[written:])
	return out.String()
}

// inName reports whether a byte may be part of the name of a pair.
func inName(c byte) bool {
	return isAlphanumeric(c) || c == '-' || c == '_' || c == '.' || c == '[' || c == ']' || c >= utf8.RuneSelf
}

// inValue reports whether a byte may be part of the value of a pair. A semicolon
// ends it, as in a cookie, and a comma does not.
func inValue(c byte) bool {
	return c > ' ' && c != '&' && c != ';' && c != '#' && c != '"' && c != '\'' && c != '<' && c != '>'
}

// bearer precedes a credential in Authorization and similar headers. Such a
// credential has more characters than the rest of the word "authentication".
const (
	bearer          = "bearer "
	minBearerLength = 16
)

// redactTokens replaces text in the form of a credential, and the text after Bearer.
func redactTokens(text string) string {
	var out strings.Builder
	written := 0 // of text
	for at := 0; at < len(text); at++ {
		switch text[at] | 0x20 {
		case 's', 'r', 'm', 'w', 'b':
		default:
			continue
		}
		if at > 0 && isAlphanumeric(text[at-1]) {
			continue
		}
		begin := at
		var end int
		if hasPrefixFold(text[at:], bearer) {
			begin += len(bearer)
			for end = begin; end < len(text) && inValue(text[end]) && text[end] != ','; end++ {
			}
			if end-begin < minBearerLength {
				continue
			}
		} else {
			length := formLength(text[at:])
			if length == 0 {
				continue
			}
			for end = at + length; end < len(text) && inCredential(text[end]); end++ {
			}
			if end-at-length < minTokenLength {
				continue
			}
		}
		out.WriteString(text[written:begin])
		out.WriteString(Replacement)
		written, at = end, end-1
	}
	return finish(&out, text, written)
}

// formLength returns the length of the prefix of a credential at the beginning of a text, or
// 0 if there is none.
func formLength(text string) int {
	for _, form := range tokenPrefixes {
		if hasPrefixFold(text, form) {
			return len(form)
		}
	}
	return 0
}

// hasPrefixFold reports whether a text begins with a prefix in any case.
func hasPrefixFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// inCredential reports whether a byte may be part of a credential of a known
// form.
func inCredential(c byte) bool { return isAlphanumeric(c) || c == '-' || c == '_' }

// isAlphanumeric reports whether a byte is an ASCII letter or digit.
func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// decode undoes one layer of percent-encoding. Invalid escapes are unchanged.
func decode(text string) string {
	at := strings.IndexByte(text, '%')
	if at < 0 {
		return text
	}
	out := []byte(text[:at])
	for ; at < len(text); at++ {
		if text[at] == '%' && at+2 < len(text) {
			high, low := hexDigit(text[at+1]), hexDigit(text[at+2])
			if high >= 0 && low >= 0 {
				out = append(out, byte(high<<4|low))
				at += 2
				continue
			}
		}
		out = append(out, text[at])
	}
	return string(out)
}

// hexDigit returns the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
