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

// Names of files are 128 random bits, in 26 characters of [a-z2-7].
const (
	nameBytes  = 16
	nameDigits = 26
)

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// drawName draws the name of a file.
func drawName() string {
	var draw [nameBytes]byte
	_, _ = rand.Read(draw[:]) // never fails: it ends the process instead
	return nameEncoding.EncodeToString(draw[:])
}

// IsName tells whether text has the form of a file's name.
func IsName(text string) bool {
	if len(text) != nameDigits {
		return false
	}
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// Path is below which address of a gateway its files are.
const Path = "/v1/files/"

// link returns the link to a file, whose last two segments are its name and its
// media name.
func link(base, name, mediaName string) string {
	return base + Path + name + "/" + url.PathEscape(mediaName)
}

// maxMediaName is how many bytes a media name has at most: 64 characters.
const maxMediaName = 64 * utf8.UTFMax

// mediaName returns what a file is called at the end of its link: what the
// caller wants, as long as that is one segment of a path whoever reads it, and
// looks like what it is, else what it is and its number among the results of the
// task. Characters that are not seen may turn around how the others are: what
// ends in .mp4 would be shown as if it ended in .exe, or the other way round.
func mediaName(wanted string, index int, kind kind) string {
	odd := func(r rune) bool { return r == '/' || r == '\\' || !unicode.IsPrint(r) }
	switch {
	case wanted == "", wanted == ".", wanted == "..", len(wanted) > maxMediaName,
		!utf8.ValidString(wanted), strings.ContainsFunc(wanted, odd):
		return fmt.Sprintf("%s-%d.%s", kind.makes, index+1, kind.extension)
	}
	return wanted
}
