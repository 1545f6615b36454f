package tasks

import (
	"net/http"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// route is one path: everything that is decided about a request before it is
// served.
type route struct {
	method  string // GET answers HEAD too
	path    string // as reply.Match takes it
	dialect reply.Dialect
	who     class
	serve   func(*request) error
}

// class is who may come in.
type class uint8

const (
	caller class = iota // with an API key
	anyone              // what is sent, or the path itself, is the credential
)

// routes has what is asked for most at the top.
var routes = []route{
	{http.MethodGet, "/v1/platform/tasks/{id}", reply.Platform, caller, showTask},
	{http.MethodGet, "/v1/video/generations/{id}", reply.Completions, caller, showGeneration},
	{http.MethodGet, "/v1/files/{name}/{*media_name}", reply.Completions, anyone, serveFile},
	{http.MethodPost, "/v1/platform/video", reply.Platform, caller, video.submit},
	{http.MethodPost, "/v1/platform/image", reply.Platform, caller, image.submit},
	{http.MethodPost, "/v1/video/generations", reply.Completions, caller, generations.submit},
	{http.MethodGet, "/v1/platform/tasks", reply.Platform, caller, listTasks},
	{http.MethodPost, "/v1/platform/tasks/{id}/cancel", reply.Platform, caller, cancelTask},
	{http.MethodPost, "/v1/notices/{backend}", reply.Completions, anyone, takeNotice},
}

// find returns the route of a path as it was written on the wire, and the
// segments that its pattern leaves open; nil when the path is not ours.
func find(r *http.Request) (*route, []string) {
	wire := r.URL.EscapedPath()
	for i := range routes {
		if segments, ok := reply.Match(routes[i].path, wire); ok {
			return &routes[i], segments
		}
	}
	return nil, nil
}

// checkMethod refuses a method that the route does not take.
func (rt *route) checkMethod(method string) *fault.Fault {
	if method == rt.method || method == http.MethodHead && rt.method == http.MethodGet {
		return nil
	}
	allow := rt.method
	if allow == http.MethodGet {
		allow = "GET, HEAD"
	}
	f := fault.New(fault.MethodNotAllowed, "%s takes %s", rt.path, allow)
	f.Allow = allow
	return f
}
