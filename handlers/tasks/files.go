package tasks

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/media"
)

// inlineTypes are the media types that a browser may show. A file of another type is a download,
// because a browser could run it as a page of this site.
var inlineTypes = map[string]bool{
	"image/png": true, "image/jpeg": true, "image/webp": true, "image/gif": true,
	"video/mp4": true, "video/webm": true, "video/quicktime": true,
}

// maxRanges is how many ranges one request may ask for (RFC 9110, section 17.15).
const maxRanges = 16

// noFile returns the fault of a link without a file.
func noFile() *fault.Fault { return fault.New(fault.NotFound, "there is no such file") }

// serveFile serves GET /v1/files/{name}/{media_name}: a result, to every caller who has the
// link. It reads no cookie and no credential.
func serveFile(req *request) error {
	mediaName, err := url.PathUnescape(req.r.PathValue("media_name"))
	if err != nil {
		return noFile()
	}
	file, err := req.runtime.Media.Open(req.r.Context(), req.r.PathValue("name"))
	if err == nil && file.MediaName != mediaName {
		file.Close()
		return noFile()
	}
	return req.serve(file, err)
}

// serve answers with a file of the archive, which it closes, or with the error of opening it.
func (req *request) serve(file *media.File, err error) error {
	switch {
	case errors.Is(err, media.ErrGone):
		return fault.New(fault.Gone, "the file has expired: results are kept for 7 days")
	case err != nil:
		return err
	}
	defer file.Close()
	if n := 1 + strings.Count(req.r.Header.Get("Range"), ","); n > maxRanges {
		return fault.New(fault.RangeNotSatisfiable, "`Range` has %d ranges; allowed: %d", n, maxRanges)
	}
	req.describe(file)
	req.release() // a long download must not hold the runtime
	// ServeContent answers ranges and conditions.
	w := &ranged{ResponseWriter: req.w}
	http.ServeContent(w, ranging(req.r), "", file.Modified, file)
	if w.refused {
		f := fault.New(fault.RangeNotSatisfiable, "`Range` has no byte of the file, which has %d bytes", file.Size)
		f.Complete = file.Size
		return f
	}
	return nil
}

// ranging returns the request without a range in an unknown unit: such a range has no effect
// (RFC 9110, section 14.2).
func ranging(r *http.Request) *http.Request {
	unit, _, _ := strings.Cut(r.Header.Get("Range"), "=")
	if r.Header.Get("Range") == "" || strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return r
	}
	whole := *r
	whole.Header = r.Header.Clone()
	whole.Header.Del("Range")
	return &whole
}

// ranged drops the refusal of a range, which ServeContent writes as text.
type ranged struct {
	http.ResponseWriter
	refused bool
}

// WriteHeader implements http.ResponseWriter.
func (w *ranged) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; !w.refused {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *ranged) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom, so that the kernel can copy the file.
func (w *ranged) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, r) }

// Unwrap returns the wrapped writer to http.ResponseController.
func (w *ranged) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// describe sets the headers of a file. A name is never reused, so that it can be the ETag.
func (req *request) describe(file *media.File) {
	contentType, disposition := file.Type, "inline"
	if !inlineTypes[contentType] {
		contentType, disposition = "application/octet-stream", "attachment"
	}
	cache := "private, no-cache" // the key, and the task, must be checked at each request
	if req.principal == nil {
		left := max(0, int64(file.GoneAt.Sub(req.runtime.Store.Now())/time.Second))
		cache = "private, max-age=" + strconv.FormatInt(left, 10) + ", immutable"
	}
	header := req.w.Header()
	dialect.Stamp(header, req.route.dialect, req.id)
	for name, value := range map[string]string{
		"Content-Type":            contentType,
		"Content-Disposition":     mime.FormatMediaType(disposition, map[string]string{"filename": file.MediaName}),
		"Cache-Control":           cache,
		"Content-Security-Policy": "sandbox",
		"Etag":                    `"` + file.Name + `"`,
		"X-Content-Type-Options":  "nosniff",
	} {
		header.Set(name, value)
	}
}
