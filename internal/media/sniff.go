package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
)

// kind is a type of file that is given out.
type kind struct {
	media     string // the media type
	makes     backends.MediaType
	extension string
}

// kinds are the types of file that are given out, and no other: a page that a
// service answers with instead of a result must not come from our address.
var kinds = []kind{
	{"image/png", backends.ImageFile, "png"},
	{"image/jpeg", backends.ImageFile, "jpg"},
	{"image/webp", backends.ImageFile, "webp"},
	{"image/gif", backends.ImageFile, "gif"},
	{"video/mp4", backends.VideoFile, "mp4"},
	{"video/webm", backends.VideoFile, "webm"},
	{"video/quicktime", backends.VideoFile, "mov"},
}

// kindOf returns the kind with a media type.
func kindOf(media string) (kind, bool) {
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.media == media })
	if at < 0 {
		return kind{}, false
	}
	return kinds[at], true
}

// sniffBytes is how much of a file tells what it is.
const sniffBytes = 512

var errKind = errors.New("the result is neither a PNG, JPEG, WebP or GIF image nor an MP4, WebM or QuickTime video")

// sniff tells by its first bytes what a file is, whatever its sender calls it.
func sniff(head []byte) (kind, error) {
	for _, s := range signatures {
		if s.fits(head) {
			k, _ := kindOf(s.media)
			return k, nil
		}
	}
	return kind{}, errKind
}

// signatures tell files by their first bytes (WHATWG MIME Sniffing, section 6;
// ISO/IEC 14496-12, section 4.3; the QuickTime File Format; the EBML header of
// WebM).
var signatures = []struct {
	media string
	fits  func(head []byte) bool
}{
	{"image/png", begins("\x89PNG\r\n\x1a\n")},
	{"image/jpeg", begins("\xff\xd8\xff")},
	{"image/gif", begins("GIF87a", "GIF89a")},
	{"image/webp", func(head []byte) bool {
		return len(head) >= 14 && string(head[:4]) == "RIFF" && string(head[8:14]) == "WEBPVP"
	}},
	{"video/webm", isWebM},
	{"video/quicktime", isQuickTime},
	{"video/mp4", isMP4},
}

func begins(with ...string) func(head []byte) bool {
	return func(head []byte) bool {
		return slices.ContainsFunc(with, func(s string) bool { return strings.HasPrefix(string(head), s) })
	}
}

// isWebM knows a document of EBML whose type is webm. Matroska, which begins
// alike, is nothing that browsers play.
func isWebM(head []byte) bool {
	_, after, found := bytes.Cut(head[:min(len(head), 80)], []byte("\x42\x82"))
	return begins("\x1a\x45\xdf\xa3")(head) && found && len(after) >= 5 && string(after[1:5]) == "webm"
}

// isQuickTime knows the brand, or the boxes that older files begin with.
func isQuickTime(head []byte) bool {
	if brands := brandsOf(head); brands != nil {
		return brands[0] == "qt  "
	}
	return len(head) >= 8 && slices.Contains([]string{"moov", "mdat", "wide"}, string(head[4:8]))
}

// Brands of MP4: the first four bytes are enough for the first list, the second
// are those of other files in the same container.
var (
	videoBrands = []string{"isom", "iso2", "iso3", "iso4", "iso5", "iso6", "iso7", "iso8", "iso9", "mp41", "mp42", "mp71", "avc1", "M4V ", "M4VH", "M4VP", "MSNV", "dash", "mmp4", "3gp4", "3gp5", "3gp6", "f4v "}
	otherBrands = []string{"avif", "avis", "heic", "heix", "heim", "heis", "hevc", "hevx", "mif1", "msf1", "M4A ", "M4B ", "M4P ", "crx ", "jp2 ", "jpm ", "jpx "}
)

func isMP4(head []byte) bool {
	brands := brandsOf(head)
	return brands != nil && !slices.Contains(otherBrands, brands[0]) &&
		slices.ContainsFunc(brands, func(b string) bool { return slices.Contains(videoBrands, b) })
}

// brandsOf returns the brands of a file that begins with a box ftyp, the one it
// is made for first.
func brandsOf(head []byte) (brands []string) {
	if len(head) < 16 || string(head[4:8]) != "ftyp" {
		return nil
	}
	size := min(uint64(binary.BigEndian.Uint32(head)), uint64(len(head)))
	brands = append(brands, string(head[8:12]))
	for at := uint64(16); at+4 <= size; at += 4 {
		brands = append(brands, string(head[at:at+4]))
	}
	return brands
}
