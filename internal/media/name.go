package media

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A file name is 128 random bits in 26 characters of [a-z2-7].
const (
	nameBytes  = 16
	nameDigits = 26
)

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newName returns a random file name.
func newName() string {
	var random [nameBytes]byte
	_, _ = rand.Read(random[:]) // never returns an error
	return nameEncoding.EncodeToString(random[:])
}

// IsName reports whether text has the form of a file name.
func IsName(text string) bool {
	return len(text) == nameDigits && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// Path is the path below which a gateway serves its files.
const Path = "/v1/files/"

// link returns the URL of a file. Its last two segments are the file name and
// the media name.
func link(base, name, mediaName string) string {
	return base + Path + name + "/" + url.PathEscape(mediaName)
}

// maxMediaName is the maximum length of a media name in bytes: 64 characters.
const maxMediaName = 64 * utf8.UTFMax

// mediaName returns the last segment of a link: the caller's name if it is
// safe, otherwise the type and the number of the result. A safe name is a single
// path segment without invisible characters. Such characters could make a name
// that ends in .exe look as if it ended in .mp4.
func mediaName(wanted string, index int, kind kind) string {
	unsafe := func(r rune) bool { return r == '/' || r == '\\' || !unicode.IsPrint(r) }
	switch {
	case wanted == "", wanted == ".", wanted == "..", len(wanted) > maxMediaName,
		!utf8.ValidString(wanted), strings.ContainsFunc(wanted, unsafe):
		return fmt.Sprintf("%s-%d.%s", kind.makes, index+1, kind.extension)
	}
	return wanted
}
