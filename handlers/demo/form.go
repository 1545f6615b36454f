package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"slices"
	"strings"
)

// readForm returns the fields of a form as the JSON of the same members, and its files.
func readForm(contentType string, body []byte) (fields []byte, files map[string][]byte, err error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, nil, err
	}
	values, files := make(map[string]any), make(map[string][]byte)
	for reader := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		part, err := reader.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, nil, err
		}
		name, inside, _ := strings.Cut(part.FormName(), "[")
		switch text := string(data); {
		case part.FileName() != "":
			files[fmt.Sprintf("%s %d", name, len(files))] = data
		case slices.Contains([]string{"n", "partial_images", "stream"}, name):
			values[name] = json.RawMessage(text)
		case inside == "]": // an element of an array
			earlier, _ := values[name].([]string)
			values[name] = append(earlier, text)
		default:
			values[name] = text
		}
	}
	fields, err = json.Marshal(values)
	return fields, files, err
}

// isForm reports whether a Content-Type is that of a form.
func isForm(contentType string) bool { return strings.HasPrefix(contentType, "multipart/form-data") }
