package tasks_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

const videosPath = "/v1/videos"

// picture begins with the bytes of a PNG file.
var picture = "\x89PNG\x0D\x0A\x1A\x0A" + strings.Repeat("pixel ", 700)

// form returns a body of multipart/form-data and its Content-Type. A name with a leading @ is a file.
func form(t testing.TB, fields ...string) (body, contentType string) {
	t.Helper()
	var text bytes.Buffer
	w := multipart.NewWriter(&text)
	for pair := range slices.Chunk(fields, 2) {
		name, value := pair[0], pair[1]
		create := w.CreateFormField
		file, isFile := strings.CutPrefix(name, "@")
		if isFile {
			create = func(name string) (io.Writer, error) { return w.CreateFormFile(name, "boat.png") }
		}
		part, err := create(file)
		if err == nil {
			_, err = part.Write([]byte(value))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return text.String(), "Content-Type: " + w.FormDataContentType()
}

// clip is a video in the form of /v1/videos.
type clip struct {
	ID, Object, Model, Status string
	Progress                  int
	Created_At                int64
	Completed_At, Expires_At  *int64
	Seconds, Size, Prompt     *string
	Remixed_From_Video_ID     *string
	Error                     *struct{ Code, Message string }
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func (w *fixture) createVideo(t testing.TB, key gatetest.Key, fields ...string) clip {
	t.Helper()
	body, contentType := form(t, fields...)
	return decoded[clip](t, w.post(t, key, videosPath, body, contentType))
}

func (w *fixture) delete(t testing.TB, key gatetest.Key, path string) gatetest.Answer {
	t.Helper()
	return w.Do(t, http.MethodDelete, path, "X-Api-Key: "+key.Secret, "")
}

// noRedirect sends a GET request and does not follow a redirect.
func (w *fixture) noRedirect(t testing.TB, key gatetest.Key, path string) gatetest.Answer {
	t.Helper()
	conn := w.Dial(t)
	conn.Send(t, fmt.Sprintf("GET %s HTTP/1.1\nHost: gate\nX-Api-Key: %s\n\n", path, key.Secret))
	return conn.Receive(t, http.MethodGet)
}
