// Package formdata reads a body of the type multipart/form-data (RFC 7578) that is in memory. [Read]
// returns its fields, and [IsForm] recognises such a body. Handlers bound the size of the body before
// they call it. It imports only internal/fault.
package formdata

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// MaxFields is the maximum number of fields of a form.
const MaxFields = 64

// Field is one field of a form.
type Field struct {
	Name   string
	IsFile bool   // it has a file name
	Value  []byte // of a text: valid UTF-8
}

// IsForm reports whether a Content-Type is multipart/form-data.
func IsForm(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return mediaType == "multipart/form-data" && (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter))
}

// Read returns the fields of a form in their order. It refuses a form that other parsers may read in
// another way: with a part without a name, an encoded part, text that is not UTF-8, or an end that is
// missing.
func Read(contentType string, body []byte) (fields []Field, refused *fault.Fault) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return nil, fault.At(fault.InvalidParameter, "Content-Type", "Content-Type has no valid boundary of the form")
	}
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) && len(fields) > 0 { // without fields, the boundary is not in the body
			return fields, nil
		}
		var field Field
		if err == nil {
			field, refused, err = read(part)
		}
		switch {
		case err != nil:
			return nil, fault.New(fault.InvalidParameter, "the form cannot be read: it is cut off, or not multipart/form-data with the boundary of its Content-Type")
		case refused != nil:
			return nil, refused
		case len(fields) == MaxFields:
			return nil, fault.New(fault.InvalidParameter, "the form has more than %d fields", MaxFields)
		}
		fields = append(fields, field)
	}
}

// read reads one part. refused is about its content, err about the form.
func read(part *multipart.Part) (field Field, refused *fault.Fault, err error) {
	disposition, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	field.Name = params["name"]
	if err != nil || disposition != "form-data" || field.Name == "" || !utf8.ValidString(field.Name) {
		return field, fault.New(fault.InvalidParameter, "a part of the form has no name in its Content-Disposition"), nil
	}
	switch coding := strings.ToLower(part.Header.Get("Content-Transfer-Encoding")); coding {
	case "", "7bit", "8bit", "binary":
	default:
		return field, fault.At(fault.InvalidParameter, field.Name, "`%s` has the Content-Transfer-Encoding %.64q; send it without one", field.Name, coding), nil
	}
	_, field.IsFile = params["filename"]
	if field.Value, err = io.ReadAll(part); err == nil && !field.IsFile && !utf8.Valid(field.Value) {
		refused = fault.At(fault.InvalidParameter, field.Name, "`%s` is not valid UTF-8", field.Name)
	}
	return field, refused, err
}
