package strictjson

import (
	"strconv"
	"unicode/utf8"
)

// path is the path of a value in a body, written as in code: "messages[3].role". A name that
// is not possible in code is quoted: `output["a b"]`.
type path string

// maxQuoted is the maximum number of bytes of an unknown name in an error.
const maxQuoted = 64

func (p path) member(name string) path {
	switch {
	case !isPlainName(name):
		return p + path("["+strconv.Quote(shorten(name))+"]")
	case p == "":
		return path(name)
	}
	return p + path("."+name)
}

func (p path) index(n int) path {
	return p + path("["+strconv.Itoa(n)+"]")
}

// isPlainName reports whether name needs no quotes.
func isPlainName(name string) bool {
	if name == "" || len(name) > maxQuoted {
		return false
	}
	for _, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// shorten cuts a long name after a complete character.
func shorten(name string) string {
	if len(name) <= maxQuoted {
		return name
	}
	cut := maxQuoted
	for !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + "…"
}
