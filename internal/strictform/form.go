// Package strictform reads multipart/form-data (RFC 7578) with one meaning for all its readers. It
// refuses every form that two parsers may read differently: line ends other than CRLF, a boundary
// within the data, repeated or folded headers, escapes in names, encodings of parts. [Parse] returns
// the fields and files as parts of the body, which is not changed. The package imports
// internal/fault and internal/strictjson.
package strictform

import (
	"bytes"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// MediaType is the media type of a form.
const MediaType = "multipart/form-data"

// The limits of a form.
const (
	MaxParts      = 128
	MaxFieldBytes = 256 << 10 // of all fields together, without files
	maxHead       = 2 << 10   // of one part
	maxName       = 64
)

// Form is a form whose parts are checked.
type Form struct {
	Boundary string
	Parts    []Part // in the order of the body
}

// Part is a field, or a file.
type Part struct {
	Name  string
	File  bool // it has a file name
	Data  []byte
	Start int // the offset of Data in the body
}

// ContentType returns the Content-Type of the form, in its usual spelling.
func (f *Form) ContentType() string { return MediaType + "; boundary=" + f.Boundary }

// Is reports whether a Content-Type is that of a form.
func Is(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), MediaType)
}

func refused(format string, args ...any) *fault.Fault {
	return fault.New(fault.InvalidParameter, "the form cannot be read: "+format, args...)
}

// Parse reads a body with this Content-Type. The parts share the memory of body.
func Parse(contentType string, body []byte) (*Form, *fault.Fault) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || len(params) != 1 || !validBoundary(params["boundary"]) {
		return nil, refused("the Content-Type needs one parameter, `boundary`, of 1 to 70 letters, digits and -_.+'")
	}
	f := &Form{Boundary: params["boundary"]}
	delimiter := []byte("--" + f.Boundary)
	rest, ok := bytes.CutPrefix(body, delimiter)
	if !ok {
		return nil, refused("the body does not begin with the boundary")
	}
	fields := 0
	for {
		if tail, last := bytes.CutPrefix(rest, []byte("--")); last {
			if len(tail) > 0 && string(tail) != "\r\n" {
				return nil, refused("the body has data after its last boundary")
			}
			return f, nil
		}
		if rest, ok = bytes.CutPrefix(rest, []byte("\r\n")); !ok {
			return nil, refused("a boundary is not followed by a line end (CRLF), or stands in the data of a part")
		}
		if len(f.Parts) == MaxParts {
			return nil, refused("it has more than %d parts", MaxParts)
		}
		head, data, found := bytes.Cut(rest, []byte("\r\n\r\n"))
		if !found || len(head) > maxHead {
			return nil, refused("part %d has no end of its headers, or more than %d bytes of headers", len(f.Parts)+1, maxHead)
		}
		part, reason := parseHead(string(head))
		if reason != "" {
			return nil, refused("part %d: %s", len(f.Parts)+1, reason)
		}
		end := bytes.Index(data, delimiter)
		if end < 2 || string(data[end-2:end]) != "\r\n" {
			return nil, refused("the data of part %d does not end with a line end (CRLF) and the boundary", len(f.Parts)+1)
		}
		part.Data, part.Start = data[:end-2], len(body)-len(data)
		rest = data[end+len(delimiter):]
		if !part.File {
			if fields += len(part.Data); fields > MaxFieldBytes {
				return nil, fault.New(fault.PayloadTooLarge, "the fields of the form are larger than %d KiB", MaxFieldBytes>>10)
			}
			if !utf8.Valid(part.Data) || bytes.IndexByte(part.Data, 0) >= 0 {
				return nil, fault.At(fault.InvalidParameter, part.Name, "`%s` is not text in UTF-8", part.Name)
			}
		}
		f.Parts = append(f.Parts, part)
	}
}

// validBoundary reports whether a boundary is readable by all parsers. RFC 2046, section 5.1.1 allows
// more characters.
func validBoundary(boundary string) bool {
	return boundary != "" && len(boundary) <= 70 && strings.Trim(boundary, letters+"-_.+'") == ""
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// parseHead reads the headers of a part. A reason says why they are refused.
func parseHead(head string) (p Part, reason string) {
	seen := make(map[string]bool)
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.ToLower(name), strings.Trim(value, " \t")
		switch {
		case !ok || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-") != "" || strings.ContainsAny(value, "\r\n\x00"):
			return p, "a line of its headers is not a header"
		case seen[name]:
			return p, name + " is given twice"
		}
		seen[name] = true
		switch name {
		case "content-disposition":
			if p.Name, p.File, reason = parseDisposition(value); reason != "" {
				return p, reason
			}
		case "content-type":
			if reason = checkType(value); reason != "" {
				return p, reason
			}
		case "content-length":
		case "content-transfer-encoding":
			if !strings.EqualFold(value, "binary") && !strings.EqualFold(value, "8bit") {
				return p, "Content-Transfer-Encoding is not supported; allowed: binary, 8bit"
			}
		default:
			return p, "the header " + name + " is not supported; allowed: Content-Disposition, Content-Type"
		}
	}
	if p.Name == "" {
		return p, "it has no name"
	}
	return p, ""
}

// parseDisposition reads the value of Content-Disposition. Names with escapes or other characters than
// those of members and brackets are refused.
func parseDisposition(value string) (name string, file bool, reason string) {
	kind, rest, _ := strings.Cut(value, ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "form-data") {
		return "", false, "Content-Disposition is not form-data"
	}
	seen := make(map[string]bool)
	for rest = strings.TrimLeft(rest, " \t"); rest != ""; {
		key, value, ok := strings.Cut(rest, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		if !ok || seen[key] {
			return "", false, "Content-Disposition cannot be read"
		}
		seen[key] = true
		var text string
		if quoted, isQuoted := strings.CutPrefix(value, `"`); isQuoted {
			if text, rest, ok = strings.Cut(quoted, `"`); !ok || strings.Contains(text, `\`) {
				return "", false, "Content-Disposition has a quotation mark or a backslash in a name"
			}
		} else {
			end := strings.IndexByte(value, ';')
			if end < 0 {
				end = len(value)
			}
			text, rest = strings.TrimRight(value[:end], " \t"), value[end:]
			if text == "" || strings.Trim(text, letters+"_-.'%") != "" {
				return "", false, "Content-Disposition cannot be read"
			}
		}
		switch key {
		case "name":
			if text == "" || len(text) > maxName || strings.Trim(text, letters+"_-.[]") != "" || text == "_charset_" {
				return "", false, "its name has other characters than letters, digits and _-.[], or is too long"
			}
			name = text
		case "filename", "filename*":
			file = true
		default:
			return "", false, "the parameter " + key + " of Content-Disposition is not supported; allowed: name, filename"
		}
		rest = strings.TrimLeft(rest, " \t")
		if rest != "" {
			if rest, ok = strings.CutPrefix(rest, ";"); !ok {
				return "", false, "Content-Disposition cannot be read"
			}
			rest = strings.TrimLeft(rest, " \t")
		}
	}
	return name, file, ""
}

// checkType refuses text in another charset than UTF-8, and parts that have parts.
func checkType(value string) (reason string) {
	media, params, err := mime.ParseMediaType(value)
	switch charset := params["charset"]; {
	case err != nil:
		return "its Content-Type cannot be read"
	case strings.HasPrefix(media, "multipart/"), strings.HasPrefix(media, "message/"):
		return "a part with parts is not supported"
	case charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii"):
		return "the charset is not supported; allowed: utf-8"
	}
	return ""
}
