// Package reply has the HTTP code that all directives share. [Route] and [Table] are the
// registry of routes. [Pass] checks for misspelt paths, [DialectOf] returns the dialect of a
// path, [ReadBody] reads bodies. Model calls read theirs in handlers/call/body.go.
package reply

import (
	"net/http"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// DialectOf returns the dialect of the path of r. It uses the canonical form of the path, so that
// misspelt paths and paths with /v1 twice also have a dialect. A list of models is in the anthropic
// dialect if the request has the version header.
func DialectOf(r *http.Request, versionHeader string) dialect.Dialect {
	wire := r.URL.EscapedPath()
	if under(wire, "/v1/platform") {
		return dialect.Platform
	}
	path, _ := canonical(wire)
	for under(path, "/v1/v1") {
		path = path[len("/v1"):]
	}
	switch {
	case under(path, "/api"):
		return dialect.Console
	case under(path, "/v1/messages"):
		return dialect.Anthropic
	case under(path, "/v1/responses"):
		return dialect.Responses
	case under(path, "/v1/platform"):
		return dialect.Platform
	case under(path, "/v1/models") && r.Header.Get(versionHeader) != "":
		return dialect.Anthropic
	}
	return dialect.OpenAI
}
