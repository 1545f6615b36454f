package fal

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/backendstest"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

const key = "id:hushhushhushhush"

// mockService simulates the queue.
type mockService struct {
	backendstest.Jobs
	base    string // of the URLs in answers; empty: that of the mock service
	failure string // the body of a failed result
	status  int    // of a failed result

	mu   sync.Mutex
	path string
	body string
}

// The paths of requests begin with owner and app, without the rest of the model's path.
var taskPath = regexp.MustCompile(`^/fal-ai/wan/requests/([^/]+)(/status)?$`)

// Op implements backendstest.MockService.
func (*mockService) Op(r *http.Request) backendstest.Op {
	switch {
	case r.Method == http.MethodPost:
		return backendstest.Submit
	case taskPath.MatchString(r.URL.Path):
		return backendstest.Poll
	}
	return backendstest.Other
}

// SetResultURL implements backendstest.ResultURLSetter.
func (d *mockService) SetResultURL(address string) { d.SetURL(address) }

// vendor has the queue's status words: a failed job is COMPLETED as well.
var vendor = map[backends.State]string{
	backends.Queued: "IN_QUEUE", backends.Running: "IN_PROGRESS", backends.Succeeded: "COMPLETED", backends.Failed: "COMPLETED",
}

func (d *mockService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Key "+key {
		backendstest.JSON(w, 401, `{"detail":"No user found for Key ID and Secret"}`)
		return
	}
	if d.Op(r) == backendstest.Submit {
		d.submit(w, r)
		return
	}
	found := taskPath.FindStringSubmatch(r.URL.Path)
	if found == nil || !d.Exists(found[1]) {
		backendstest.JSON(w, 404, `{"detail":"Request not found"}`)
		return
	}
	state, word := d.State(vendor)
	status, _ := json.Marshal(word)
	link, _ := json.Marshal(d.URL())
	address := d.baseURL(r) + strings.TrimSuffix(r.URL.Path, "/status")
	switch {
	case found[2] != "":
		backendstest.JSON(w, 200, `{"status":%s,"request_id":%q,"queue_position":0,"response_url":%q,"status_url":%q,"logs":null}`, status, found[1], address, address+"/status")
	case state == backends.Failed:
		backendstest.JSON(w, d.status, "%s", d.failure)
	case state != backends.Succeeded:
		backendstest.JSON(w, 400, `{"detail":"Request is still in progress"}`)
	default:
		backendstest.JSON(w, 200, `{"video":{"url":%s,"content_type":"video/mp4","file_name":"output.mp4","file_size":4711},"seed":7,"page":"https://fal.ai/docs"}`, link)
	}
}

func (d *mockService) baseURL(r *http.Request) string {
	if d.base != "" {
		return d.base
	}
	return "http://" + r.Host
}

func (d *mockService) submit(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	if strings.Contains(string(raw), "99") {
		backendstest.JSON(w, 422, `{"detail":[{"loc":["body","duration"],"msg":"Input should be '5' or '10'","type":"literal_error"}]}`)
		return
	}
	d.mu.Lock()
	d.path, d.body = r.URL.RequestURI(), string(raw)
	d.mu.Unlock()
	id := d.Accept("")
	address := d.baseURL(r) + "/fal-ai/wan/requests/" + id
	backendstest.JSON(w, 200, `{"status":"IN_QUEUE","request_id":%q,"gateway_request_id":%[1]q,"response_url":%q,"status_url":%q,"cancel_url":%q,"queue_position":3}`,
		id, address, address+"/status", address+"/cancel")
}

const refused = `{"detail":[{"loc":["body","prompt"],"msg":"The content could not be processed because it was flagged.","type":"content_policy_violation"}]}`

func newMockService() *mockService {
	d := &mockService{failure: refused, status: 422}
	d.SetURL(backendstest.DefaultURL)
	return d
}

func newAdapter(t *testing.T, address string) *Fal {
	t.Helper()
	f := &Fal{URL: address, Key: key, Models: map[string]string{"video-wan-2": "fal-ai/wan/v2.2/text-to-video"}}
	if err := paymentstest.Provision(t, f); err != nil {
		t.Fatal(err)
	}
	return f
}

func job() backends.Job {
	return backends.Job{Token: "tok", Kind: backends.Video, Model: "video-wan-2", Prompt: "a fox", Output: backends.Output{Duration: 5, Resolution: "720P"}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]string{"URLs of the service": "", "URLs of another host": "https://evil.example"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backendstest.Run(t, backendstest.Service{
				Mock: func() backendstest.MockService {
					d := newMockService()
					d.base = base
					return d
				},
				Backend: func(t *testing.T, address string) backends.Backend { return newAdapter(t, address) },
				Job:     job(), Secret: key,
			})
		})
	}
}

func TestJobsBecomeInputs(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*backends.Job)
		want   string // the body, or the param that is refused
	}{
		"a job": {func(*backends.Job) {}, `{"prompt":"a fox","duration":"5","resolution":"720p"}`},
		"images": {func(j *backends.Job) {
			j.Kind, j.Output = backends.Image, backends.Output{AspectRatio: "1:1", Count: 3, Format: "jpeg"}
			j.Inputs = []backends.Input{{URL: "https://x.example/a.png"}, {URL: "https://x.example/b.png"}}
		}, `{"prompt":"a fox","aspect_ratio":"1:1","num_images":3,"output_format":"jpeg","image_urls":["https://x.example/a.png","https://x.example/b.png"]}`},
		"a frame":        {func(j *backends.Job) { j.Inputs = []backends.Input{{URL: "u", Usage: "firstFrame"}} }, `{"prompt":"a fox","duration":"5","resolution":"720p","image_url":"u"}`},
		"a last frame":   {func(j *backends.Job) { j.Inputs = []backends.Input{{URL: "u", Usage: "lastFrame"}} }, "inputs"},
		"unknown model":  {func(j *backends.Job) { j.Model = "video-y-1" }, "model"},
		"refused by fal": {func(j *backends.Job) { j.Output.Duration = 99 }, "output.duration"},
	} {
		d := newMockService()
		server := httptest.NewServer(d)
		t.Cleanup(server.Close)
		f := newAdapter(t, server.URL)
		f.Inputs = map[string]string{"duration": "duration:string", "reference_images": "image_urls"}
		j := job()
		row.change(&j)
		_, err := f.Submit(t.Context(), j)
		if err != nil {
			if e := backendstest.CheckError(t, err, key); e == nil || e.Kind != backends.Refused || e.Param != row.want {
				t.Errorf("%s: %v, want %s", name, err, row.want)
			}
			continue
		}
		var got, want any
		if json.Unmarshal([]byte(d.body), &got) != nil || json.Unmarshal([]byte(row.want), &want) != nil || !reflect.DeepEqual(got, want) || d.path != "/fal-ai/wan/v2.2/text-to-video" {
			t.Errorf("%s: sent %s %s, want %s", name, d.path, d.body, row.want)
		}
	}
}

func TestCompletedIsNotSuccess(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		status int
		body   string
		state  backends.State
		reason backends.Reason
		kind   backends.Kind
	}{
		"refused content":    {422, refused, backends.Failed, backends.ContentRejected, ""},
		"a bad input":        {422, `{"detail":[{"loc":["body"],"msg":"m","type":"image_load_error"}]}`, backends.Failed, backends.InvalidInput, ""},
		"a text":             {400, `{"detail":"bad"}`, backends.Failed, backends.InvalidInput, ""},
		"an empty body":      {400, ``, backends.Failed, backends.InvalidInput, ""},
		"no media":           {422, `{"detail":[{"msg":"m","type":"no_media_generated"}]}`, backends.Failed, backends.ModelFailed, ""},
		"too slow":           {422, `{"detail":[{"msg":"m","type":"generation_timeout"}]}`, backends.Failed, backends.TaskTimeout, ""},
		"downstream":         {422, `{"detail":[{"msg":"m","type":"downstream_service_error"}]}`, backends.Failed, backends.UpstreamBusy, ""},
		"unavailable":        {422, `{"detail":[{"msg":"m","type":"downstream_service_unavailable"}]}`, backends.Failed, backends.UpstreamBusy, ""},
		"internal":           {422, `{"detail":[{"msg":"m","type":"internal_server_error"}]}`, backends.Failed, backends.UpstreamError, ""},
		"the key is refused": {401, `{"detail":"no"}`, "", "", backends.Refused},
		"no money":           {402, `{"detail":"no"}`, "", "", backends.Refused},
		"forbidden":          {403, `{"detail":"no"}`, "", "", backends.Refused},
		"gone":               {404, `{"detail":"no"}`, "", "", backends.Gone},
		"too many requests":  {429, `{"detail":"no"}`, "", "", backends.Busy},
		"a server error":     {500, `{"detail":"no"}`, "", "", backends.Busy},
	} {
		d := newMockService()
		d.status, d.failure = row.status, row.body
		server := httptest.NewServer(d)
		t.Cleanup(server.Close)
		f := newAdapter(t, server.URL)
		ref, err := f.Submit(t.Context(), job())
		if err != nil {
			t.Fatal(err)
		}
		d.SetState(backends.Failed)
		status, err := f.Poll(t.Context(), ref)
		if err != nil {
			if backends.KindOf(err) != row.kind {
				t.Errorf("%s: %v, want %s", name, err, row.kind)
			}
			continue
		}
		if status.State != row.state || status.Failure == nil || status.Failure.Reason != row.reason {
			t.Errorf("%s: %+v %+v", name, status, status.Failure)
		}
	}
}

func TestURLsOfAReferenceMustBeBelowTheBase(t *testing.T) {
	t.Parallel()
	f := newAdapter(t, "https://queue.example")
	for name, links := range map[string]map[string]string{
		"no URL":        nil,
		"another host":  {"status": "https://evil.example/status"},
		"http":          {"status": "http://queue.example/status"},
		"another port":  {"status": "https://queue.example:444/status"},
		"not a URL":     {"status": "x"},
		"with userinfo": {"status": "https://queue.example@evil.example/status"},
		"a longer name": {"status": "https://queue.example.evil.example/status"},
	} {
		if _, err := f.Poll(t.Context(), backends.Ref{ID: "x", Links: links}); backends.KindOf(err) != backends.Gone {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *Fal { return new(Fal) }, map[string]string{
		"fal": `{}`,
		"fal {\nurl https://x\nkey k\nmodel a o/n\ninput duration duration:string\n}": `{"url":"https://x","key":"k","models":{"a":"o/n"},"inputs":{"duration":"duration:string"}}`,
		"fal {\nkey hush\nkey hush\n}": ``,
		"fal {\nsecret hush\n}":        ``,
		"fal hush":                     ``,
	})
	good := map[string]string{"a": "o/n"}
	for name, bad := range map[string]*Fal{
		"no key":        {Models: good},
		"a bad URL":     {Key: key, URL: "x", Models: good},
		"no model":      {Key: key},
		"no owner":      {Key: key, Models: map[string]string{"a": "name"}},
		"dots":          {Key: key, Models: map[string]string{"a": "o/n/../x"}},
		"a query":       {Key: key, Models: map[string]string{"a": "o/n?fal_webhook=x"}},
		"unknown input": {Key: key, Models: good, Inputs: map[string]string{"frame": "x"}},
	} {
		if err := paymentstest.Provision(t, bad); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := &Fal{Key: key, Models: good}
	if err := paymentstest.Provision(t, f); err != nil || f.client.Base != defaultURL {
		t.Error(err)
	}
	if got := fmt.Sprint(app("fal-ai/wan/v2/x"), " ", app("o/n")); got != "fal-ai/wan o/n" {
		t.Error(got)
	}
}
