package replicate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/backendstest"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

const (
	key    = "r8_hushhushhushhush"
	secret = "whsec_aHVzaGh1c2hodXNoaHVzaA=="
)

// mockService simulates Replicate.
type mockService struct {
	backendstest.Jobs
	output string // the form of outputs, with %s for the URL

	mu   sync.Mutex
	path string
	body string
}

var (
	submitPath = regexp.MustCompile(`^/v1/((models|deployments)/[^/]+/[^/]+/)?predictions$`)
	taskPath   = regexp.MustCompile(`^/v1/predictions/([^/]+)(/cancel)?$`)
)

// Op implements backendstest.MockService.
func (*mockService) Op(r *http.Request) backendstest.Op {
	found := taskPath.FindStringSubmatch(r.URL.Path)
	switch {
	case submitPath.MatchString(r.URL.Path) && r.Method == http.MethodPost:
		return backendstest.Submit
	case found != nil && found[2] != "" && r.Method == http.MethodPost:
		return backendstest.Cancel
	case found != nil && found[2] == "":
		return backendstest.Poll
	}
	return backendstest.Other
}

// SetResultURL implements backendstest.ResultURLSetter.
func (d *mockService) SetResultURL(address string) { d.SetURL(address) }

var vendor = map[backends.State]string{
	backends.Queued: "starting", backends.Running: "processing", backends.Succeeded: "succeeded", backends.Failed: "failed",
}

func (d *mockService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+key {
		backendstest.JSON(w, 401, `{"title":"Unauthenticated","detail":"You did not pass a valid authentication token","status":401}`)
		return
	}
	op := d.Op(r)
	if op == backendstest.Submit {
		d.submit(w, r)
		return
	}
	if r.URL.Path == "/v1/account" {
		backendstest.JSON(w, 200, `{"type":"organization","username":"acme","name":"Acme","github_url":"https://github.com/acme"}`)
		return
	}
	id := taskPath.FindStringSubmatch(r.URL.Path)[1]
	if !d.Exists(id) {
		backendstest.JSON(w, 404, `{"detail":"The requested resource could not be found.","status":404}`)
		return
	}
	// Replicate answers the cancellation of an ended prediction with the prediction.
	if op == backendstest.Cancel {
		d.Cancel(id)
	}
	d.writeJob(w, 200, id)
}

func (d *mockService) submit(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body struct {
		Input map[string]any `json:"input"`
	}
	if json.Unmarshal(raw, &body) != nil || body.Input == nil || r.Header.Get("Prefer") != "" {
		backendstest.JSON(w, 422, `{"title":"Input validation failed","detail":"- input is required","status":422}`)
		return
	}
	if body.Input["prompt"] == "long" {
		backendstest.JSON(w, 422, `{"title":"Input validation failed","detail":"- input.duration: Must be less than or equal to 10","status":422}`)
		return
	}
	d.mu.Lock()
	d.path, d.body = r.URL.Path, string(raw)
	d.mu.Unlock()
	d.writeJob(w, 201, d.Accept(""))
}

func (d *mockService) writeJob(w http.ResponseWriter, status int, id string) {
	state, word := d.State(vendor)
	output, failure, metrics := "null", "null", "{}"
	if d.Cancelled(id) {
		word = "canceled"
	} else if state == backends.Succeeded {
		link, _ := json.Marshal(d.URL())
		output, metrics = strings.ReplaceAll(d.output, "%s", string(link)), `{"predict_time":12.5,"total_time":13}`
	} else if state == backends.Failed {
		failure, metrics = `"NSFW content detected"`, `{"predict_time":1.25}`
	}
	statusWord, _ := json.Marshal(word)
	backendstest.JSON(w, status, `{"id":%q,"model":"o/n","version":"v","input":{"prompt":"a fox"},"logs":"","status":%s,"output":%s,"error":%s,
		"data_removed":false,"metrics":%s,"urls":{"get":"https://api.replicate.com/v1/predictions/x"}}`, id, statusWord, output, failure, metrics)
}

// version is a model version in Replicate's form.
var version = strings.Repeat("0a", 32)

func newAdapter(t *testing.T, address string) *Replicate {
	t.Helper()
	r := &Replicate{URL: address, Key: key, WebhookSecret: secret, Models: map[string]string{
		"video-x-1": "owner/model", "video-pinned-1": "owner/model:" + version, "video-own-1": "deployments/me/mine",
	}}
	if err := paymentstest.Provision(t, r); err != nil {
		t.Fatal(err)
	}
	return r
}

func job() backends.Job {
	return backends.Job{Token: "tok", Kind: backends.Video, Model: "video-x-1", Prompt: "a fox", Output: backends.Output{Duration: 5, Resolution: "720P"}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, output := range map[string]string{"string": `%s`, "list": `[%s]`, "object": `{"video":%s,"took":3}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backendstest.Run(t, backendstest.Service{
				Mock: func() backendstest.MockService {
					d := &mockService{output: output}
					d.SetURL(backendstest.DefaultURL)
					return d
				},
				Backend: func(t *testing.T, address string) backends.Backend { return newAdapter(t, address) },
				Job:     job(), Secret: key,
			})
		})
	}
}

func TestJobsBecomePredictions(t *testing.T) {
	t.Parallel()
	seed := int64(3)
	for name, row := range map[string]struct {
		change func(*backends.Job)
		path   string
		want   string // the body, or the param that is refused
	}{
		"a job":          {func(*backends.Job) {}, "/v1/models/owner/model/predictions", `{"input":{"prompt":"a fox","duration":5,"resolution":"720p"}}`},
		"pinned":         {func(j *backends.Job) { j.Model = "video-pinned-1" }, "/v1/predictions", `{"version":"` + version + `","input":{"prompt":"a fox","duration":5,"resolution":"720p"}}`},
		"a deployment":   {func(j *backends.Job) { j.Model = "video-own-1" }, "/v1/deployments/me/mine/predictions", `{"input":{"prompt":"a fox","duration":5,"resolution":"720p"}}`},
		"with a webhook": {func(j *backends.Job) { j.NotifyURL = "https://x.example/n" }, "/v1/models/owner/model/predictions", `{"input":{"prompt":"a fox","duration":5,"resolution":"720p"},"webhook":"https://x.example/n","webhook_events_filter":["completed"]}`},
		"many fields": {func(j *backends.Job) {
			j.NegativePrompt, j.Seed, j.EnhancePrompt = "n", &seed, "disabled"
			j.Inputs = []backends.Input{{URL: "https://x.example/a.png", Usage: "firstFrame"}, {URL: "https://x.example/r.png", Category: "image", Usage: "reference"}}
			j.Output = backends.Output{Duration: 5.5, AspectRatio: "1:1", Count: 2, Format: "png", AudioGeneration: "disabled", MediaName: "m"}
			j.ExtInfo = json.RawMessage(`{"steps":[1.50],"duration":99,"secret":2}`)
		}, "/v1/models/owner/model/predictions", `{"input":{"prompt":"a fox","negative_prompt":"n","seed":3,"image":"https://x.example/a.png","refs":["https://x.example/r.png"],
			"duration":5.5,"ratio":"1:1","num_outputs":2,"output_format":"png","num_steps":[1.50]}}`},
		"metadata": {func(j *backends.Job) {
			j.Kind, j.Fields = backends.Generations, map[string]json.RawMessage{"metadata": json.RawMessage(`{"style":"x","seconds":"5"}`), "user": json.RawMessage(`"u"`), "response_format": json.RawMessage(`"url"`)}
			j.Adopted = []string{"metadata.seconds"}
		}, "/v1/models/owner/model/predictions", `{"input":{"prompt":"a fox","duration":5,"resolution":"720p","style":"x"}}`},
		"unknown metadata": {func(j *backends.Job) {
			j.Kind, j.Fields = backends.Generations, map[string]json.RawMessage{"metadata": json.RawMessage(`{"no":1}`)}
		}, "", "metadata.no"},
		"an unknown field": {func(j *backends.Job) {
			j.Kind, j.Fields = backends.Generations, map[string]json.RawMessage{"quality": json.RawMessage(`1`)}
		}, "", "quality"},
		"unknown extras":  {func(j *backends.Job) { j.ExtInfo = json.RawMessage(`{"other":1}`) }, "", "ext_info.other"},
		"enhanced prompt": {func(j *backends.Job) { j.EnhancePrompt = "enabled" }, "", "enhance_prompt"},
		"a region":        {func(j *backends.Job) { j.InputRegion = "oversea" }, "", "input_region"},
		"a mask": {func(j *backends.Job) {
			j.Inputs = []backends.Input{{URL: "u", Usage: "firstFrame"}, {URL: "r", Usage: "reference", ReferenceType: "mask"}}
		}, "", "inputs[1].reference_type"},
		"a last frame":  {func(j *backends.Job) { j.Inputs = []backends.Input{{URL: "u", Usage: "lastFrame"}} }, "", "inputs"},
		"a video":       {func(j *backends.Job) { j.Inputs = []backends.Input{{URL: "u", Category: "video", Usage: "reference"}} }, "", "inputs"},
		"a subject":     {func(j *backends.Job) { j.SubjectInputs = []backends.SubjectInput{{URL: "u"}} }, "", "subject_inputs"},
		"a scene":       {func(j *backends.Job) { j.SceneType = "lip_sync" }, "", "scene_type"},
		"with sound":    {func(j *backends.Job) { j.Output.AudioGeneration = "enabled" }, "", "output.audio_generation"},
		"without sound": {func(j *backends.Job) { j.Output.AudioGeneration = "disabled" }, "/v1/models/owner/model/predictions", `{"input":{"prompt":"a fox","duration":5,"resolution":"720p"}}`},
		"a size":        {func(j *backends.Job) { j.Kind, j.Output.Width = backends.Generations, 640 }, "", "width"},
		"unknown model": {func(j *backends.Job) { j.Model = "video-y-1" }, "", "model"},
		"refused":       {func(j *backends.Job) { j.Prompt = "long" }, "", ""},
	} {
		d := &mockService{output: "%s"}
		server := httptest.NewServer(d)
		t.Cleanup(server.Close)
		r := newAdapter(t, server.URL)
		r.Inputs = map[string]string{
			"reference_images": "refs", "aspect_ratio": "ratio", "ext_info.steps": "num_steps", "ext_info.duration": "duration",
			"ext_info.secret": "-", "format": "output_format:string", "metadata.style": "style",
		}
		j := job()
		row.change(&j)
		_, err := r.Submit(t.Context(), j)
		if err != nil {
			if e := backendstest.CheckError(t, err, key); e == nil || e.Kind != backends.Refused || e.Reason != backends.InvalidInput || e.Param != row.want {
				t.Errorf("%s: %v, want %s", name, err, row.want)
			}
			continue
		}
		var got, want any
		if json.Unmarshal([]byte(d.body), &got) != nil || json.Unmarshal([]byte(row.want), &want) != nil || !reflect.DeepEqual(got, want) || d.path != row.path {
			t.Errorf("%s: sent %s\n%s, want %s\n%s", name, d.path, d.body, row.path, row.want)
		}
	}
}

func TestOutputsFailuresAndCosts(t *testing.T) {
	t.Parallel()
	r := newAdapter(t, "https://x.example")
	const a, b = "https://x.example/a.png", "https://x.example/b.png"
	for body, want := range map[string]struct {
		state  backends.State
		reason backends.Reason
		links  []string
	}{
		`{"status":"starting"}`:                                                   {state: backends.Queued},
		`{"status":"processing","output":["` + a + `"]}`:                          {state: backends.Running},
		`{"status":"Succeeded","output":["` + a + `","` + b + `"]}`:               {state: backends.Succeeded, links: []string{a, b}},
		`{"status":"succeeded","output":{"z":"` + a + `","y":{"x":"` + b + `"}}}`: {state: backends.Succeeded, links: []string{b, a}},
		`{"status":"succeeded","output":"a poem"}`:                                {state: backends.Unknown},
		`{"status":"succeeded","output":null}`:                                    {state: backends.Unknown},
		`{"status":"succeeded","output":null,"data_removed":true}`:                {state: backends.Failed, reason: backends.UpstreamError},
		`{"status":"failed","error":"CUDA out of memory"}`:                        {state: backends.Failed, reason: backends.ModelFailed},
		`{"status":"failed","error":"NSFW content detected"}`:                     {state: backends.Failed, reason: backends.ContentRejected},
		`{"status":"failed","error":"it was Flagged as Sensitive. (E005)"}`:       {state: backends.Failed, reason: backends.ContentRejected},
		`{"status":"failed","error":"Content moderation failed"}`:                 {state: backends.Failed, reason: backends.ContentRejected},
		`{"status":"failed","error":"high demand (E003)"}`:                        {state: backends.Failed, reason: backends.UpstreamBusy},
		`{"status":"failed","error":"bad (E006)"}`:                                {state: backends.Failed, reason: backends.InvalidInput},
		`{"status":"failed","error":"Prediction timed out"}`:                      {state: backends.Failed, reason: backends.TaskTimeout},
		`{"status":"failed","error":null}`:                                        {state: backends.Failed, reason: backends.ModelFailed},
		`{"status":"canceled"}`:                                                   {state: backends.Failed, reason: backends.TaskCancelled},
		`{"status":"aborted"}`:                                                    {state: backends.Failed, reason: backends.UpstreamBusy},
	} {
		var p prediction
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			t.Fatal(err)
		}
		got := r.status(p, backends.ImageFile)
		backendstest.CheckStatus(t, got, key)
		var links []string
		for _, result := range got.Results {
			links = append(links, result.URL)
		}
		if got.State != want.state || !reflect.DeepEqual(links, want.links) || got.Failure != nil && got.Failure.Reason != want.reason {
			t.Errorf("the status of %s is %+v %+v", body, got, got.Failure)
		}
	}

	d := &mockService{output: "%s"}
	d.SetURL(a)
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	r = newAdapter(t, server.URL)
	ref, err := r.Submit(t.Context(), job())
	if err != nil {
		t.Fatal(err)
	}
	d.SetState(backends.Succeeded)
	if status, err := r.Poll(t.Context(), ref); err != nil || status.Cost != (backends.Cost{Amount: "12.5", Unit: "predict seconds"}) {
		t.Errorf("%+v, %v", status, err)
	}
}

func TestAWebhookNamesThePredictionToPoll(t *testing.T) {
	t.Parallel()
	r := newAdapter(t, "https://x.example")
	notification := func(body string) backends.Notification {
		mac := hmac.New(sha256.New, []byte("hushhushhushhush"))
		stamp := strconv.Itoa(1_800_000_000)
		fmt.Fprintf(mac, "m.%s.%s", stamp, body)
		return backends.Notification{
			Header: http.Header{
				"Webhook-Id": {"m"}, "Webhook-Timestamp": {stamp},
				"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
			},
			Body: []byte(body), Now: time.Unix(1_800_000_000, 0),
		}
	}
	if id, err := r.Notice(notification(`{"id":"p1","status":"succeeded"}`)); err != nil || id != "p1" {
		t.Errorf("%q, %v", id, err)
	}
	forged := notification(`{"id":"p1"}`)
	forged.Body = []byte(`{"id":"p2"}`)
	for name, n := range map[string]backends.Notification{"a changed body": forged, "no id": notification(`{}`), "not JSON": notification(`x`)} {
		if id, err := r.Notice(n); err == nil {
			t.Errorf("%s: %q", name, id)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *Replicate { return new(Replicate) }, map[string]string{
		"replicate": `{}`,
		"replicate {\nurl https://x\nkey k\nwebhook_secret s\nmodel a o/n\ninput first_frame start_image\n}": `{"url":"https://x","key":"k","webhook_secret":"s","models":{"a":"o/n"},"inputs":{"first_frame":"start_image"}}`,
		"replicate {\nkey hush\nkey hush\n}":                       ``,
		"replicate {\ninput first_frame a\ninput first_frame b\n}": ``,
		"replicate hush": ``,
	})
	good := map[string]string{"a": "o/n"}
	for name, bad := range map[string]*Replicate{
		"no key":        {Models: good},
		"a bad URL":     {Key: key, URL: "x", Models: good},
		"no model":      {Key: key},
		"no owner":      {Key: key, Models: map[string]string{"a": "name"}},
		"a path":        {Key: key, Models: map[string]string{"a": "o/../n"}},
		"a query":       {Key: key, Models: map[string]string{"a": "o/n?x"}},
		"short version": {Key: key, Models: map[string]string{"a": "o/n:1"}},
		"unknown input": {Key: key, Models: good, Inputs: map[string]string{"frame": "x"}},
		"a bad secret":  {Key: key, Models: good, WebhookSecret: "hush"},
	} {
		if err := paymentstest.Provision(t, bad); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := &Replicate{Key: key, Models: good}
	if err := paymentstest.Provision(t, r); err != nil || r.client.Base != defaultURL {
		t.Errorf("%v", err)
	}
}

func TestAPendingCancellationIsNotConfirmed(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]backends.Kind{
		`{"id":"x","status":"processing"}`: backends.Unconfirmed,
		`{"id":"x","status":"succeeded"}`:  backends.Refused,
		`{}`:                               backends.Unconfirmed,
		`{"status":"levitating"}`:          backends.Unconfirmed,
		`<html>`:                           backends.Unconfirmed,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		t.Cleanup(server.Close)
		err := newAdapter(t, server.URL).Cancel(t.Context(), backends.Ref{ID: "x"})
		if e := backendstest.CheckError(t, err, key); e == nil || e.Kind != want {
			t.Errorf("the error after %s is %v, want %s", answer, err, want)
		}
	}
}
