package formdata

import (
	"fmt"
	"strings"
	"testing"
)

const head = "multipart/form-data; boundary=b"

// part returns one part of a form with these lines as its head.
func part(lines, value string) string { return "--b\r\n" + lines + "\r\n\r\n" + value + "\r\n" }

const named = `Content-Disposition: form-data; name="a"`

func TestFormsAreReadOrRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want string // the fields, or part of the message
	}{
		"texts and files": {
			part(named, "1") + part(`content-disposition: form-data; name="a[b]"; filename="x.png"`+"\r\nContent-Type: image/png", "\xff\x00") + part(named, "") + "--b--\r\n",
			`a=1 a[b]=@"\xff\x00" a=`,
		},
		"a line end in a value":     {part(named, "1\r\n--c\r\n") + "--b--", "a=1\r\n--c\r\n"},
		"binary":                    {part(named+"\r\nContent-Transfer-Encoding: Binary", "=31") + "--b--", "a==31"},
		"quoted-printable":          {part(named+"\r\nContent-Transfer-Encoding: quoted-printable", "=31") + "--b--", "Content-Transfer-Encoding"},
		"no name":                   {part("Content-Disposition: form-data", "1") + "--b--", "no name"},
		"an empty name":             {part(`Content-Disposition: form-data; name=""`, "1") + "--b--", "no name"},
		"an attachment":             {part(`Content-Disposition: attachment; name="a"`, "1") + "--b--", "no name"},
		"two names":                 {part(named+`; name="b"`, "1") + "--b--", "no name"},
		"no head":                   {part("X: y", "1") + "--b--", "no name"},
		"text that is not UTF-8":    {part(named, "\xff") + "--b--", "not valid UTF-8"},
		"a name that is not UTF-8":  {part("Content-Disposition: form-data; name=\"\xff\"", "1") + "--b--", "no name"},
		"a part that is cut off":    {part(named, "1")[:20], "cut off"},
		"no last boundary":          {part(named, "1"), "cut off"},
		"another boundary":          {strings.ReplaceAll(part(named, "1")+"--b--", "--b", "--c"), "cut off"},
		"an empty body":             {"", "cut off"},
		"no fields":                 {"--b--", "cut off"},
		"too many fields":           {strings.Repeat(part(named, "1"), MaxFields+1) + "--b--", "more than 64"},
		"the greatest number":       {strings.Repeat(part(named, "1"), MaxFields) + "--b--", "a=1 a=1"},
		"a head of two megabytes":   {part(named+"\r\nX: "+strings.Repeat("y", 2<<20), "1"), "cut off"},
		"a name in two lines":       {part("Content-Disposition: form-data;\r\n name=\"a\"", "1") + "--b--", "a=1"},
		"another spelling of names": {part("CONTENT-DISPOSITION: Form-Data; NAME=a", "1") + "--b--", "a=1"},
	} {
		fields, refused := Read(head, []byte(c.body))
		var got []string
		for _, f := range fields {
			value := string(f.Value)
			if f.IsFile {
				value = "@" + fmt.Sprintf("%q", value)
			}
			got = append(got, f.Name+"="+value)
		}
		text := strings.Join(got, " ")
		if refused != nil {
			text = refused.Message
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %.200s, want %s", name, text, c.want)
		}
	}
}

func TestTheTypeOfAForm(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]bool{
		head: true, "Multipart/Form-Data; boundary=\"b\"": true, "multipart/form-data": true, "multipart/form-data; boundary": true,
		"": false, "application/json": false, "multipart/mixed; boundary=b": false, "multipart/form-dat": false,
	} {
		if IsForm(contentType) != want {
			t.Errorf("%q is a form: %t", contentType, !want)
		}
		if _, refused := Read(contentType, []byte(part(named, "1")+"--b--")); (refused == nil) != (want && strings.Contains(contentType, "=")) && contentType != "multipart/mixed; boundary=b" {
			t.Errorf("%q: %v", contentType, refused)
		}
	}
}

func FuzzAFormIsReadOnce(f *testing.F) {
	f.Add([]byte(part(named, "1") + "--b--"))
	f.Fuzz(func(t *testing.T, body []byte) {
		fields, refused := Read(head, body)
		size := 0
		for _, field := range fields {
			size += len(field.Value)
		}
		if size > len(body) || refused != nil && fields != nil || refused == nil && len(fields) == 0 {
			t.Errorf("%d bytes of fields in %d, %v", size, len(body), refused)
		}
	})
}
