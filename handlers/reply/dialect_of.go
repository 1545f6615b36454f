// Package reply has what all directives share about HTTP: the registry of routes ([Route],
// [Table]), the check of misspelt paths ([Pass]), the dialect of a path ([DialectOf]), and the
// reading of bodies ([ReadBody]). Model calls read theirs in handlers/call/body.go.
package reply

import (
	"net/http"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// DialectOf returns the dialect of a path: that of the prefix as it is written, or else that
// of the canonical form, so that a misspelt path has a dialect, too, and one with /v1 twice. A list of models is in
// the anthropic dialect if the request has the version header.
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
	case under(path, "/v1/platform"):
		return dialect.Platform
	case under(path, "/v1/models") && r.Header.Get(versionHeader) != "":
		return dialect.Anthropic
	}
	return dialect.OpenAI
}
