package strictform

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// anything is a table without rules.
var anything = strictjson.NewTable()

const contentType = "multipart/form-data; boundary=b"

// FuzzParse compares accepted forms with the standard library.
func FuzzParse(f *testing.F) {
	for _, body := range []string{
		"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=file; filename=\"a;b.wav\"\r\nContent-Type: audio/wav\r\n\r\n\x00\r\n\r\n--b--",
		"--b\r\nContent-Disposition: form-data; name=\"a[]\"\r\n\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"a[b]\"\r\n\r\n1\r\n--b--\r\n",
		"--b\r\ncontent-disposition:form-data;name=\"x\" ; filename*=utf-8''a\r\nContent-Transfer-Encoding: 8BIT\r\n\r\ny\r\n--b--\r\n",
		"--b\nContent-Disposition: form-data; name=\"model\"\n\nm\n--b--\n",
		"--b--",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		form, refused := Parse(contentType, body)
		if refused != nil {
			return
		}
		reader := multipart.NewReader(bytes.NewReader(body), form.Boundary)
		for i, part := range form.Parts {
			other, err := reader.NextRawPart()
			if err != nil {
				t.Fatalf("part %d of %q: %v", i, body, err)
			}
			data, err := io.ReadAll(other)
			if err != nil || !bytes.Equal(data, part.Data) || other.FormName() != part.Name {
				t.Fatalf("part %d of %q is %q=%q here and %q=%q there, %v", i, body, part.Name, part.Data, other.FormName(), data, err)
			}
			if other.FileName() != "" && !part.File {
				t.Fatalf("part %d of %q is a file", i, body)
			}
		}
		if _, err := reader.NextRawPart(); err != io.EOF {
			t.Fatalf("%q has more than %d parts", body, len(form.Parts))
		}
	})
}

func TestTheFieldsOfAFormAreJSON(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	w := multipart.NewWriter(&body)
	for _, field := range [][2]string{{"model", `a "b" é`}, {"list[]", "x"}, {"object[a]", "1"}, {"list[]", "y"}, {"object[b]", "z"}} {
		if err := w.WriteField(field[0], field[1]); err != nil {
			t.Fatal(err)
		}
	}
	file, err := w.CreateFormFile("image[]", "a.png")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(file, "12345")
	w.Close()
	form, f := Parse(w.FormDataContentType(), []byte(body.String()))
	if f != nil {
		t.Fatal(f)
	}
	got, f := form.JSON(anything, map[string]int{"image": 2})
	if want := `{"model":"a \"b\" é","list":["x","y"],"object":{"a":"1","b":"z"},"image":[5]}`; f != nil || string(got) != want || !json.Valid(got) {
		t.Errorf("the fields are %s, want %s (%v)", got, want, f)
	}
	if form.ContentType() != w.FormDataContentType() {
		t.Errorf("the type is %s", form.ContentType())
	}
}
