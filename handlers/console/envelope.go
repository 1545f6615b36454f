package console

import (
	"net/http"
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/query"
)

// envelope is the JSON object of every answer of the console.
type envelope struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Data    any    `json:"data"`
	URL     string `json:"url,omitempty"` // next page, for clients that expect it here
}

// once returns the answer to a request with an idempotency key, and marks a replay.
func (req *request) once(e envelope, replayed bool) (any, error) {
	if replayed {
		req.w.Header().Set("Idempotent-Replayed", "true")
	}
	return e, nil
}

// send writes an envelope, or wraps data in one.
func (req *request) send(answer any) error {
	e, ok := answer.(envelope)
	if !ok {
		e.Data = answer
	}
	e.Success = true
	body, err := dialect.JSON(e)
	if err != nil {
		return err
	}
	req.write("application/json", body)
	return nil
}

// write sends a body without change.
func (req *request) write(contentType string, body []byte) {
	header := req.w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	req.w.WriteHeader(http.StatusOK)
	_, _ = req.w.Write(body) //nolint:gosec // our JSON, or the fixed text of a payment service's adapter
}

// list is one page of a list.
type list[T any] struct {
	Items    []T   `json:"items"`
	Total    int64 `json:"total"`
	Page     int64 `json:"page"` // from 1
	PageSize int64 `json:"page_size"`
}

// listed returns a page with the items that are on it.
func listed[T any](items []T, total int64, p query.Page) list[T] {
	if items == nil {
		items = []T{}
	}
	return list[T]{items, total, p.Number(), p.Limit}
}

// cut returns the items of one page out of all items, and the total. Its results are
// those of an endpoint of lists, so it passes err on.
func cut[T any](all []T, err error, p query.Page) ([]T, int64, error) {
	return query.Cut(all, p), int64(len(all)), err
}
