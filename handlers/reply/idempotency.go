package reply

import (
	"net/http"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// IdempotencyKey returns the header of this name, empty if it is absent. It refuses an empty
// key, and a header that is repeated with different values.
func IdempotencyKey(header http.Header) (string, *fault.Fault) {
	const name = "Idempotency-Key"
	given := header[name]
	if len(given) == 0 {
		return "", nil
	}
	for _, key := range given {
		switch {
		case key == "":
			return "", fault.At(fault.InvalidParameter, name, "%s is empty; leave it out, or send a unique word such as a UUID", name)
		case key != given[0]:
			return "", fault.At(fault.InvalidParameter, name, "%s is given more than once, with different values", name)
		}
	}
	return given[0], nil
}
