package call

import (
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// usualVersion is the version that almost all callers send. Its date is not parsed for each call.
const usualVersion = "2023-06-01"

// checkVersion requires the header with the version of the messages dialect, which
// is a date.
func checkVersion(values []string, name string) *fault.Fault {
	if len(values) == 0 || values[0] == "" {
		return fault.At(fault.MissingParameter, name, "the header %s is required, with a date such as "+usualVersion, name)
	}
	if len(values) == 1 && values[0] == usualVersion {
		return nil
	}
	for _, value := range values {
		if _, err := time.Parse(time.DateOnly, value); err != nil || value != values[0] {
			return fault.At(fault.InvalidParameter, name, "the header %s must be one date such as "+usualVersion, name)
		}
	}
	return nil
}

// checkEncoding refuses encoded bodies, because the gateway must check the same bytes
// that the backend reads.
func checkEncoding(header http.Header) *fault.Fault {
	if coding := reply.Encoding(header); coding != "" {
		return fault.New(fault.UnsupportedMediaType, "Content-Encoding %q: send the body without an encoding", coding)
	}
	return nil
}
