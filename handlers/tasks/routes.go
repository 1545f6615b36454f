package tasks

import (
	"strings"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// route is one row of the table: the checks of a request, and the function that serves it.
type route struct {
	method  string // GET answers HEAD, too
	path    string // pattern of reply.Match
	dialect dialect.Dialect
	who     reply.Credential
	rate    rate
	maxBody int64 // in bytes; zero: no body is read

	// params are the names of the parameters that the query may have, separated by spaces.
	// Submissions refuse other names; elsewhere they have no effect.
	params string

	serve func(*request) error
	form  *form // of a submission, with serve nil
}

// routes has the routes with the most requests first.
var routes = []route{
	{"GET", "/v1/platform/tasks/{task_id}", dialect.Platform, reply.APIKey, waits, 0, "wait", showTask, nil},
	{"GET", "/v1/video/generations/{task_id}", dialect.OpenAI, reply.APIKey, waits, 0, "wait", showGeneration, nil},
	{"GET", "/v1/videos/{task_id}", dialect.OpenAI, reply.APIKey, waits, 0, "wait", showVideo, nil},
	{"GET", "/v1/videos/{task_id}/content", dialect.OpenAI, reply.APIKey, unlimited, 0, "variant", serveContent, nil},
	{"GET", "/v1/files/{name}/{*media_name}", dialect.OpenAI, reply.Public, unlimited, 0, "", serveFile, nil},
	{"POST", "/v1/platform/video", dialect.Platform, reply.APIKey, calls, 1 << 20, "dry_run", nil, video},
	{"POST", "/v1/platform/image", dialect.Platform, reply.APIKey, calls, 1 << 20, "dry_run", nil, image},
	{"POST", "/v1/video/generations", dialect.OpenAI, reply.APIKey, calls, 16 << 20, "dry_run", nil, generations},
	{"POST", "/v1/videos", dialect.OpenAI, reply.APIKey, calls, 12 << 20, "dry_run", nil, videos}, // an image in Base64 is a third longer
	{"POST", "/v1/videos/{task_id}/remix", dialect.OpenAI, reply.APIKey, calls, 1 << 20, "dry_run", nil, remix},
	{"GET", "/v1/videos", dialect.OpenAI, reply.APIKey, lists, 0, "after limit order", listVideos, nil},
	{"DELETE", "/v1/videos/{task_id}", dialect.OpenAI, reply.APIKey, calls, 0, "", deleteVideo, nil},
	{"GET", "/v1/platform/tasks", dialect.Platform, reply.APIKey, lists, 0, "after limit status", listTasks, nil},
	{"POST", "/v1/platform/tasks/{task_id}/cancel", dialect.Platform, reply.APIKey, calls, 0, "", cancelTask, nil},
	{"POST", "/v1/notices/{backend}", dialect.OpenAI, reply.Signature, notices, 1 << 20, "", takeNotice, nil},
}

// table has the routes in the form of the registry, in the same order.
var table = declare()

func declare() reply.Table {
	rows := make([]reply.Route, len(routes))
	for i, rt := range routes {
		rows[i] = reply.Route{
			Method: rt.method, Path: rt.path, Dialect: rt.dialect, Credential: rt.who,
			Rate: rt.rate.name, MaxBody: rt.maxBody, Query: strings.Fields(rt.params),
		}
	}
	return reply.Register(rows...)
}
