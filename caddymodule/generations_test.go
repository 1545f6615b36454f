package caddymodule_test

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
)

// routing is a configuration with several patterns of backends and prices. Every price
// differs, so that the amount identifies the price.
const routing = `"base_url":"https://ai.example","media":{"path":"/nowhere/media"},"default_model":"any-1",
	"families":[{"family":"E","models":["*"]},{"family":"F","models":["video-long-*"]}],
	"backends":[
		{"name":"all","models":["*"],"adapter":{"adapter":"demo"}},
		{"name":"long","models":["video-long-*"],"max_running":3,"adapter":{"adapter":"demo"}},
		{"name":"one","models":["video-long-2"],"adapter":{"adapter":"demo"}},
		{"name":"calls","models":["call-*"],"adapter":{"adapter":"replicate","key":"r8_x","webhook_secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","models":{"video-call-1":"a/b"}}},
		{"name":"ending","adapter":{"adapter":"demo"}}
	],
	"prices":[
		{"model":"video-*","second":[{"price":"1"}]},
		{"model":"video-long-*","second":[{"price":"2"}]},
		{"model":"video-long-2","second":[{"price":"3"}]},
		{"model":"any-*","second":[{"price":"4"}],"image":[{"price":"5"}]},
		{"model":"image-talks-*","input":"1","output":"1","context":10,"max_output":10}
	]`

// decoded decodes a body of one of the three endpoints.
func decoded(t *testing.T, path, body string) generation.Request {
	t.Helper()
	var r generation.Request
	var refused *fault.Fault
	switch path {
	case "video":
		r, _, refused = generation.DecodeVideo([]byte(body))
	case "image":
		r, _, refused = generation.DecodeImage([]byte(body))
	default:
		r, refused = generation.DecodeGenerations([]byte(body))
	}
	if refused != nil {
		t.Fatal(refused)
	}
	return r
}

func TestAGenerationGoesToTheBackendAndThePriceOfItsModel(t *testing.T) {
	t.Parallel()
	app := mustProvision(t, "{"+routing+"}")
	for name, c := range map[string]struct {
		path, model string
		backend     string
		hold        string // of 4 seconds, or of one image
		refused     fault.Code
	}{
		"a prefix":                         {"video", "video-other-1", "all", "4.00", ""},
		"a longer prefix":                  {"video", "video-long-1", "long", "8.00", ""},
		"an exact name":                    {"video", "video-long-2", "one", "12.00", ""},
		"an exact name as a prefix":        {"video", "video-long-22", "long", "8.00", ""},
		"a price without the kind":         {"image", "image-any-1", "all", "5.00", ""},
		"a longer price without the kind":  {"video", "video-any-1", "all", "16.00", ""},
		"the same model without its kind":  {"generations", "long-2", "one", "12.00", ""},
		"the same model with its kind":     {"generations", "video-long-2", "one", "12.00", ""},
		"the default model":                {"generations", "", "all", "16.00", ""},
		"no default for platform tasks":    {"video", "", "", "", fault.InvalidModel},
		"a model without its kind":         {"video", "long-2", "", "", fault.InvalidModel},
		"a model of the other kind":        {"image", "video-long-2", "", "", fault.InvalidModel},
		"without a price":                  {"image", "image-free-1", "", "", fault.ModelNotFound},
		"with a price only for calls":      {"image", "image-talks-1", "", "", fault.ModelNotFound},
		"a value its family does not have": {"video", "video-long-1?duration=16", "", "", fault.InvalidParameter},
		"a value its family has, not E":    {"video", "video-long-1?duration=15", "long", "30.00", ""},
	} {
		model, duration, _ := strings.Cut(c.model, "?duration=")
		if duration == "" {
			duration = "4"
		}
		body := `{"model":"` + model + `","prompt":"a","output":{"duration":` + duration + `}}`
		switch c.path {
		case "image":
			body = `{"model":"` + model + `","prompt":"a"}`
		case "generations":
			body = `{"model":"` + model + `","prompt":"a","duration":` + duration + `}`
		}
		g, refused := app.Generation(decoded(t, c.path, body))
		if c.refused != "" {
			if refused == nil || refused.Code != c.refused {
				t.Errorf("%s: got %v, want %s", name, refused, c.refused)
			}
			continue
		}
		if refused != nil {
			t.Errorf("%s: %v", name, refused)
			continue
		}
		want, err := money.Parse(c.hold)
		if err != nil {
			t.Fatal(err)
		}
		if g.Backend != c.backend || g.Quote.Hold != want || g.Price == nil || g.Quote.Rule == "" {
			t.Errorf("%s: %s for %v (%s), want %s for %v", name, g.Backend, g.Quote.Hold, g.Quote.Rule, c.backend, want)
		}
	}
}

func TestAModelThatAPriceExcludesIsNotFree(t *testing.T) {
	t.Parallel()
	app := mustProvision(t, `{"media":{"off":true},"backends":[{"name":"a","models":["x-1,y"],"adapter":{"adapter":"fal","key":"x","models":{"x-1,y":"a/b"}}}],
		"prices":[{"model":"x-*","second":[{"price":"1"}]}],"unpriced":"allow"}`)
	if g, refused := app.Generation(decoded(t, "generations", `{"model":"x-1,y","prompt":"a","duration":4}`)); refused == nil || refused.Code != fault.ModelNotFound {
		t.Errorf("backend %q for %v, %v", g.Backend, g.Quote.Hold, refused)
	}
}

func TestGenerationsWithoutAPriceAreFreeOrRefused(t *testing.T) {
	t.Parallel()
	request := decoded(t, "video", `{"model":"video-x-1","prompt":"a"}`)
	const backend = `"media":{"off":true},"families":[{"family":"E","models":["x-*"]}],"backends":[{"name":"a","models":["x-*"],"adapter":{"adapter":"fal","key":"x","models":{"video-x-1":"a/b"}}}]`
	for name, c := range map[string]struct {
		config string
		free   bool
	}{
		"no model has a price":        {`{` + backend + `}`, true},
		"others have a price":         {`{` + backend + `,"prices":[{"model":"y","request":"1"}]}`, false},
		"others have, unpriced allow": {`{` + backend + `,"prices":[{"model":"y","request":"1"}],"unpriced":"allow"}`, true},
		"it has a price for calls":    {`{` + backend + `,"prices":[{"model":"video-x-1","input":"1","output":"1","context":1,"max_output":1}]}`, false},
		"its price is zero":           {`{` + backend + `,"prices":[{"model":"video-x-1","second":[{"price":"0"}]}]}`, true},
	} {
		g, refused := mustProvision(t, c.config).Generation(request)
		if (refused == nil) != c.free || refused != nil && refused.Code != fault.ModelNotFound || g.Quote.Hold != 0 || c.free && g.Quote.Rule == "" {
			t.Errorf("%s: %+v, %v", name, g.Quote, refused)
		}
	}
}

func TestASubmissionHasEveryFieldOfATask(t *testing.T) {
	t.Parallel()
	app := mustProvision(t, "{"+routing+"}")
	g, refused := app.Generation(decoded(t, "video", `{"model":"video-call-1","prompt":"a","session_id":"s","session_context":"c","output":{"audio":true}}`))
	if refused != nil {
		t.Fatal(refused)
	}
	payer := ledger.Payer{User: "usr_1"}
	s := g.Submission(payer, "key_1")
	if s.Payer.User != "usr_1" || s.Key != "key_1" || s.Backend != "calls" || s.SessionID != "s" || s.SessionContext != "c" || s.Quote.Hold != g.Quote.Hold || s.Quote.Kind != catalog.Video {
		t.Errorf("the submission is %+v", s)
	}
	if job := s.Job; job.Kind != backends.Video || job.Output.Duration != 8 || job.Output.Resolution != "720P" || job.Output.AudioGeneration != backends.Enabled {
		t.Errorf("the job is %+v", job)
	}
	if s.Job.NotifyURL != "https://ai.example/v1/notices/calls" {
		t.Errorf("the notify URL is %q", s.Job.NotifyURL)
	}
	if _, notified := app.Notified("calls"); !notified {
		t.Error("the adapter with notices is not found")
	}
	for _, name := range []string{"all", "nobody", ""} {
		if _, notified := app.Notified(name); notified {
			t.Errorf("%q has notices", name)
		}
	}
	g, refused = app.Generation(decoded(t, "video", `{"model":"video-long-2","prompt":"a"}`))
	if s := g.Submission(payer, "key_1"); refused != nil || s.Job.NotifyURL != "" {
		t.Errorf("a service without notices got %q, %v", s.Job.NotifyURL, refused)
	}
}

// TestInvalidTaskConfigurationsAreRefused covers errors that only provisioning finds.
func TestInvalidTaskConfigurationsAreRefused(t *testing.T) {
	t.Parallel()
	const (
		demo   = `"backends":[{"name":"a","models":["x-*"],"adapter":{"adapter":"demo"}}]`
		linked = `"backends":[{"name":"a","models":["x-*"],"adapter":{"adapter":"fal","key":"x","models":{"video-x-1":"a/b"}}}]`
		base   = `"base_url":"https://ai.example",`
		secret = `"secret":"whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNoaHVzaGh1c2g="`
	)
	for name, c := range map[string]struct{ config, want string }{
		"no base_url":                  {`{` + demo + `}`, "backends need base_url"},
		"media off and only bytes":     {`{` + base + `"media":{"off":true},` + demo + `}`, "media off: backend a returns bytes without links"},
		"media off and links":          {`{"media":{"off":true},` + linked + `}`, ""},
		"a host only for files":        {`{"media":{"path":"/x","base_url":"https://files.example"},` + linked + `}`, ""},
		"two places":                   {`{` + base + `"media":{"path":"/x","s3":{}},` + linked + `}`, "path and s3 exclude each other"},
		"a bucket without a key":       {`{` + base + `"media":{"s3":{"endpoint":"https://s3.example","bucket":"b"}},` + linked + `}`, "access_key is missing"},
		"a bucket without a service":   {`{` + base + `"media":{"s3":{"bucket":"b","access_key":"a","secret_key":"b"}},` + linked + `}`, "endpoint is missing"},
		"a secret that is not set":     {`{` + base + `"media":{"s3":{"endpoint":"https://s3.example","bucket":"b","access_key":"{env.MODELGATE_NOWHERE}","secret_key":"b"}},` + linked + `}`, "access_key"},
		"a bucket":                     {`{` + base + `"media":{"s3":{"endpoint":"https://s3.example","bucket":"b","access_key":"a","secret_key":"b"}},` + linked + `}`, ""},
		"media in a path of a URL":     {`{` + base + `"media":{"path":"/x","base_url":"https://f.example/files"}}`, "base_url"},
		"too large a file":             {`{` + base + `"media":{"path":"/x","max_file":99999999999},` + linked + `}`, "max_file"},
		"an allowed host with no port": {`{` + base + `"media":{"path":"/x","allow":["10.0.0.1"]},` + linked + `}`, "media: allowed address"},
		"two of one name":              {`{` + base + `"backends":[{"name":"a","adapter":{"adapter":"demo"}},{"name":"a","adapter":{"adapter":"demo"}}]}`, "backend a is given twice"},
		"an invalid name":              {`{` + base + `"backends":[{"name":"a/b","adapter":{"adapter":"demo"}}]}`, `backend "a/b"`},
		"no adapter":                   {`{` + base + `"backends":[{"name":"a"}]}`, "adapter is missing"},
		"an invalid adapter":           {`{` + base + `"backends":[{"name":"a","adapter":{"adapter":"fal"}}]}`, "backend a: loading the adapter"},
		"two equal patterns":           {`{` + base + `"backends":[{"name":"a","models":["x"],"adapter":{"adapter":"demo"}},{"name":"b","models":["x"],"adapter":{"adapter":"demo"}}]}`, "backend b: models: backend a already has the pattern x"},
		"an invalid pattern":           {`{` + base + `"backends":[{"name":"a","models":["x*y"],"adapter":{"adapter":"demo"}}]}`, "only at the end"},
		"a negative max_running":       {`{` + base + `"backends":[{"name":"a","max_running":-1,"adapter":{"adapter":"demo"}}]}`, "max_running"},
		"too short a wait":             {`{` + base + `"backends":[{"name":"a","busy_timeout":"1s","adapter":{"adapter":"demo"}}]}`, "busy_timeout is 1s; allowed: 10s to 72h0m0s"},
		"too long a wait":              {`{` + base + `"backends":[{"name":"a","busy_timeout":"4d","adapter":{"adapter":"demo"}}]}`, "busy_timeout is 96h0m0s; allowed: 10s to 72h0m0s"},
		"too many polls":               {`{` + base + `"backends":[{"name":"a","polls_per_second":99999,"adapter":{"adapter":"demo"}}]}`, "polls_per_second"},
		"a default without a backend":  {`{` + base + demo + `,"default_model":"y-1"}`, "default_model y-1: no backend runs it"},
		"a default with a wildcard":    {`{` + base + demo + `,"default_model":"x-*"}`, "the name of one model"},
		"an unknown family":            {`{"families":[{"family":"G","models":["x"]}]}`, `family "G"`},
		"a callback without a secret":  {`{"callback":{"url":"https://hooks.example"}}`, "url needs secret"},
		"a secret without a callback":  {`{"callback":{` + secret + `}}`, "secret needs url"},
		"an invalid secret":            {`{"callback":{"url":"https://hooks.example","secret":"whsec_hush"}}`, "whsec_ and the base64"},
		"a callback to this machine":   {`{"callback":{"url":"http://127.0.0.1:9000/x",` + secret + `}}`, "in allow"},
		"one that is allowed":          {`{"callback":{"url":"http://127.0.0.1:9000/x",` + secret + `,"allow":["127.0.0.1:9000"]}}`, ""},
		"an invalid allowed address":   {`{"callback":{"allow":["hooks.example"]}}`, "callback: allowed address"},
		"tasks are kept for a day":     {`{"retention":{"tasks":"1d"}}`, "tasks is 24h0m0s; allowed: 3d to"},
		"calls are kept for a day":     {`{"retention":{"calls":"1d"}}`, "calls is 24h0m0s; allowed: 3d to 3653d"},
		"the audit is kept for a week": {`{"retention":{"audit":"7d"}}`, "audit is 168h0m0s; allowed: 30d to 3653d"},
		"a negative retention":         {`{"retention":{"calls":"-90d"}}`, "calls is -2160h0m0s; allowed"},
		"too long a retention":         {`{"retention":{"audit":"3654d"}}`, "audit is 87696h0m0s; allowed: 30d"},
		"the shortest and the longest": {`{"retention":{"calls":"3d","audit":"3653d"}}`, ""},
		"no unfinished tasks":          {`{"limits":{"unfinished_tasks":-1}}`, "unfinished_tasks is -1; allowed: 1"},
		"a callback without a host":    {`{"callback":{"url":"/x",` + secret + `}}`, "must be an absolute"},
		"only defaults":                {`{}`, ""},
		"media without backends":       {`{"media":{"path":"/x"}}`, ""},
	} {
		_, err := provision(t, c.config)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
	}
}

// TestTheModelsOfGenerationsAreListed lists the models of a configuration with patterns.
func TestTheModelsOfGenerationsAreListed(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range mustProvision(t, "{"+routing+"}").GenerationModels() {
		got = append(got, m.Model+" "+m.Pattern+" "+m.Name)
	}
	want := "image-any-1 image-any-* E, video-1-1 video-* E, video-any-1 video-any-* E, video-call-1 video-call-* E, video-long-1 video-long-* F, video-long-2  F"
	if list := strings.Join(got, ", "); list != want {
		t.Errorf("they are %s, want %s", list, want)
	}
}
