package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
)

// kind is a type of file that the gateway serves.
type kind struct {
	media     string // the media type
	makes     backends.MediaType
	extension string
}

// kinds are the file types that the gateway serves. It serves no others: an
// HTML page that a service returns instead of a result must not come from the
// gateway's origin.
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

// sniffBytes is the number of bytes that determine the kind of a file.
const sniffBytes = 512

var errKind = errors.New("the result is neither a PNG, JPEG, WebP or GIF image nor an MP4, WebM or QuickTime video")

// sniff returns the kind of a file by its first bytes, regardless of the
// sender's media type.
func sniff(head []byte) (kind, error) {
	for _, s := range signatures {
		if s.fits(head) {
			k, _ := kindOf(s.media)
			return k, nil
		}
	}
	return kind{}, errKind
}

// signatures are the first bytes of files by kind (WHATWG MIME Sniffing,
// section 6; ISO/IEC 14496-12, section 4.3; the QuickTime File Format; the EBML
// header of WebM).
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

// isWebM reports whether the file is an EBML document of type webm. Matroska
// begins in the same way, but browsers do not play it.
func isWebM(head []byte) bool {
	_, after, found := bytes.Cut(head[:min(len(head), 80)], []byte("\x42\x82"))
	return begins("\x1a\x45\xdf\xa3")(head) && found && len(after) >= 5 && string(after[1:5]) == "webm"
}

// isQuickTime reports whether the file has the brand of QuickTime, or begins
// with a box of files without a brand.
func isQuickTime(head []byte) bool {
	if brands := brandsOf(head); brands != nil {
		return brands[0] == "qt  "
	}
	return len(head) >= 8 && slices.Contains([]string{"moov", "mdat", "wide"}, string(head[4:8]))
}

// Brands in the container of MP4. A file is an MP4 if one of its brands is in
// videoBrands and its major brand is not in otherBrands.
var (
	videoBrands = []string{"isom", "iso2", "iso3", "iso4", "iso5", "iso6", "iso7", "iso8", "iso9", "mp41", "mp42", "mp71", "avc1", "M4V ", "M4VH", "M4VP", "MSNV", "dash", "mmp4", "3gp4", "3gp5", "3gp6", "f4v "}
	otherBrands = []string{"avif", "avis", "heic", "heix", "heim", "heis", "hevc", "hevx", "mif1", "msf1", "M4A ", "M4B ", "M4P ", "crx ", "jp2 ", "jpm ", "jpx "}
)

func isMP4(head []byte) bool {
	brands := brandsOf(head)
	return brands != nil && !slices.Contains(otherBrands, brands[0]) &&
		slices.ContainsFunc(brands, func(b string) bool { return slices.Contains(videoBrands, b) })
}

// brandsOf returns the brands of a file that begins with a box ftyp, the major
// brand first.
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
