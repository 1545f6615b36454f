package platform

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
	key    = "sk-hushhushhushhush"
	secret = "whsec_aHVzaGh1c2hodXNoaHVzaA=="
)

// mockService simulates another gateway.
type mockService struct {
	backendstest.Jobs
	omitFirstTask bool // the error for a duplicate session id does not name the first task

	mu   sync.Mutex
	path string
	body string // of the last submission
}

var taskPath = regexp.MustCompile(`^/v1/platform/tasks/([^/]+)(/cancel)?$`)

// Op implements backendstest.MockService.
func (*mockService) Op(r *http.Request) backendstest.Op {
	found := taskPath.FindStringSubmatch(r.URL.Path)
	switch {
	case r.Method == http.MethodPost && found == nil:
		return backendstest.Submit
	case r.Method == http.MethodPost && found[2] != "":
		return backendstest.Cancel
	case found != nil:
		return backendstest.Poll
	}
	return backendstest.Other
}

// SetResultURL implements backendstest.ResultURLSetter.
func (d *mockService) SetResultURL(address string) { d.SetURL(address) }

var vendor = map[backends.State]string{
	backends.Queued: "queued", backends.Running: "in_progress", backends.Succeeded: "success", backends.Failed: "failed",
}

// refuse answers with an error. members are further members of the body.
func refuse(w http.ResponseWriter, status int, code, param, members string) {
	backendstest.JSON(w, status, `{"code":%q,"message":"refused: %[1]s",%s"error":{"code":%[1]q,"message":"refused: %[1]s","type":"t","param":%[3]q}}`, code, members, param)
}

func (d *mockService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+key {
		refuse(w, 401, "UNAUTHORIZED", "", "")
		return
	}
	op := d.Op(r)
	if op == backendstest.Submit {
		d.submit(w, r)
		return
	}
	id := taskPath.FindStringSubmatch(r.URL.Path)[1]
	if !d.Exists(id) {
		refuse(w, 404, "TASK_NOT_FOUND", "", "")
		return
	}
	if op == backendstest.Cancel && !d.Cancel(id) {
		refuse(w, 409, "TASK_NOT_CANCELLABLE", "", "")
		return
	}
	d.writeJob(w, id)
}

func (d *mockService) submit(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.path, d.body = r.URL.Path, string(raw)
	var body struct {
		SessionID string `json:"session_id"`
		Model     string `json:"model"`
		Prompt    string `json:"prompt"`
		Output    struct {
			Duration int `json:"duration"`
		} `json:"output"`
	}
	switch err := json.Unmarshal(raw, &body); {
	case err != nil, len(body.SessionID) > 50:
		refuse(w, 400, "INVALID_PARAMETER", "session_id", "")
	case body.Model == "":
		refuse(w, 400, "MISSING_PARAMETER", "model", "")
	case body.Output.Duration == 7:
		refuse(w, 400, "INVALID_PARAMETER", "output.duration", "")
	case strings.Contains(body.Prompt, "no quota"):
		refuse(w, 402, "INSUFFICIENT_QUOTA", "", "")
	default:
		token := body.SessionID
		if token == "" {
			token = r.Header.Get("Idempotency-Key")
		}
		if id := d.Find(token); id != "" && d.omitFirstTask {
			refuse(w, 409, "DUPLICATE_SESSION_ID", "session_id", "")
			return
		} else if id != "" {
			refuse(w, 409, "DUPLICATE_SESSION_ID", "session_id", fmt.Sprintf(`"task_id":%q,`, id))
			return
		}
		backendstest.JSON(w, 200, `{"task_id":%q,"status":"queued"}`, d.Accept(token))
	}
}

func (d *mockService) writeJob(w http.ResponseWriter, id string) {
	state, word := d.State(vendor)
	rest := `,"progress":"0%"`
	if d.Cancelled(id) {
		state, word = backends.Failed, vendor[backends.Failed]
	}
	status, _ := json.Marshal(word)
	link, _ := json.Marshal(d.URL())
	switch state {
	case backends.Running:
		rest = `,"progress":"37%"`
	case backends.Succeeded:
		rest = fmt.Sprintf(`,"progress":"100%%","completed_at":1800000009,"result":{"url":%s,"urls":[%[1]s],"type":"video"}`, link)
	case backends.Failed:
		rest = `,"progress":"0%","completed_at":1800000009,"error":{"code":"TASK_FAILED","message":"unsafe","reason":"CONTENT_REJECTED"}`
	}
	backendstest.JSON(w, 200, `{"task_id":%q,"object":"video_task","model":"video-x-1","status":%s,"created_at":1800000000%s}`, id, status, rest)
}

func newMockService() *mockService {
	d := new(mockService)
	d.SetURL(backendstest.DefaultURL)
	return d
}

func newAdapter(t *testing.T, address string) *Platform {
	t.Helper()
	p := &Platform{URL: address, Key: key, CallbackSecret: secret}
	if err := paymentstest.Provision(t, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func job() backends.Job {
	return backends.Job{
		Token: backends.Token("task_1"), Kind: backends.Video, Model: "video-x-1", Prompt: "a fox",
		Output: backends.Output{Duration: 5, Resolution: "720P"},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, kind := range []backends.JobKind{backends.Video, backends.Generations} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			j := job()
			j.Kind = kind
			backend := func(t *testing.T, address string) backends.Backend { return newAdapter(t, address) }
			if kind == backends.Generations {
				// These jobs cannot be reconciled, so this hides Reconcile.
				backend = func(t *testing.T, address string) backends.Backend {
					type withoutReconcile interface {
						backends.Backend
						backends.Canceler
					}
					return struct{ withoutReconcile }{newAdapter(t, address)}
				}
			}
			backendstest.Run(t, backendstest.Service{
				Mock: func() backendstest.MockService { return newMockService() }, Backend: backend, Job: j, Secret: key,
			})
		})
	}
}

func TestEveryFieldIsForwarded(t *testing.T) {
	t.Parallel()
	seed := int64(7)
	full := backends.Job{
		Token: "tok", NotifyURL: "https://x.example", Kind: backends.Video, Model: "video-x-1", Prompt: "<a> fox", NegativePrompt: "b",
		EnhancePrompt: "enabled", GenerationMode: "text-to-video",
		Inputs: []backends.Input{{
			URL: "https://x.example/a.png", Category: "image", ReferenceType: "asset", ObjectID: "o", VoiceID: "v",
			KeepOriginalSound: "disabled", Usage: "reference", Text: "t",
		}},
		SubjectInputs: []backends.SubjectInput{{URL: "https://x.example/s.png", ID: "i", Name: "n"}},
		Output: backends.Output{
			Duration: 5, Resolution: "720P", AspectRatio: "16:9", AudioGeneration: "enabled", EnhanceSwitch: "disabled",
			FrameInterpolate: "enabled", MediaName: "m", ClassID: 3, Count: 2, Format: "png",
		},
		SceneType: "lip_sync", InputRegion: "oversea", Seed: &seed, ExtInfo: json.RawMessage(`{"a":1.50}`),
	}
	for name, row := range map[string]struct {
		kind backends.JobKind
		path string
		want string
	}{
		"video": {backends.Video, "/v1/platform/video", `{"model":"other-x","prompt":"<a> fox","negative_prompt":"b","enhance_prompt":"enabled","generation_mode":"text-to-video",
			"inputs":[{"url":"https://x.example/a.png","category":"image","reference_type":"asset","object_id":"o","voice_id":"v","keep_original_sound":"disabled","usage":"reference","text":"t"}],
			"subject_inputs":[{"url":"https://x.example/s.png","id":"i","name":"n"}],
			"output":{"duration":5,"resolution":"720P","aspect_ratio":"16:9","audio_generation":"enabled","enhance_switch":"disabled","frame_interpolate":"enabled","media_name":"m","class_id":3,"count":2,"format":"png"},
			"scene_type":"lip_sync","input_region":"oversea","session_id":"tok","ext_info":{"a":1.50},"seed":7}`},
		"image":       {backends.Image, "/v1/platform/image", ""},
		"generations": {backends.Generations, "/v1/video/generations", `{"model":"other-x","prompt":"as written","x":[1.50],"duration":5,"n":2,"image":"https://x.example/a.png"}`},
	} {
		d := newMockService()
		server := httptest.NewServer(d)
		t.Cleanup(server.Close)
		p := newAdapter(t, server.URL)
		p.Models = map[string]string{"video-x-1": "other-x"}
		j := full
		j.Kind = row.kind
		if row.kind == backends.Generations {
			j.Fields = map[string]json.RawMessage{"prompt": json.RawMessage(`"as written"`), "model": json.RawMessage(`"ours"`), "x": json.RawMessage(`[1.50]`)}
		}
		if _, err := p.Submit(t.Context(), j); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.path != row.path {
			t.Errorf("%s: submitted to %s, want %s", name, d.path, row.path)
		}
		if row.want == "" {
			continue
		}
		var got, want any
		if json.Unmarshal([]byte(d.body), &got) != nil || json.Unmarshal([]byte(row.want), &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: sent %s, want %s", name, d.body, row.want)
		}
		if row.kind == backends.Video && !strings.Contains(d.body, `"ext_info":{"a":1.50}`) {
			t.Errorf("ext_info was rewritten: %s", d.body)
		}
	}
	fraction := job()
	fraction.Output.Duration = 2.5
	if _, err := newAdapter(t, "https://x.example").Submit(t.Context(), fraction); backends.KindOf(err) != backends.Refused {
		t.Errorf("a duration of 2.5 seconds: %v", err)
	}
}

func TestRefusalsNameTheFieldAndHideTheAccount(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newMockService())
	t.Cleanup(server.Close)
	p := newAdapter(t, server.URL)

	j := job()
	j.Output.Duration = 7
	_, err := p.Submit(t.Context(), j)
	if e := backendstest.CheckError(t, err, key); e == nil || e.Kind != backends.Refused || e.Param != "output.duration" || e.Reason != backends.InvalidInput {
		t.Errorf("an invalid duration: %v", err)
	}
	j = job()
	j.Prompt = "no quota"
	_, err = p.Submit(t.Context(), j)
	if e := backendstest.CheckError(t, err, key); e == nil || e.Reason != backends.UpstreamError || strings.Contains(e.Message, "QUOTA") || !strings.Contains(e.Detail, "INSUFFICIENT_QUOTA") {
		t.Errorf("an account without quota: %v", err)
	}
}

func TestADuplicateWithoutItsTaskIsUnconfirmed(t *testing.T) {
	t.Parallel()
	d := newMockService()
	d.omitFirstTask = true
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	p := newAdapter(t, server.URL)
	if _, err := p.Submit(t.Context(), job()); err != nil {
		t.Fatal(err)
	}
	for name, submit := range map[string]func() error{
		"submit":    func() error { _, err := p.Submit(t.Context(), job()); return err },
		"reconcile": func() error { _, err := p.Reconcile(t.Context(), job()); return err },
		"generations": func() error {
			j := job()
			j.Kind = backends.Generations
			_, err := p.Reconcile(t.Context(), j)
			return err
		},
	} {
		if err := submit(); backends.KindOf(err) != backends.Unconfirmed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReasonsOfFailedTasks(t *testing.T) {
	t.Parallel()
	p := newAdapter(t, "https://x.example")
	for _, row := range []struct {
		reason, code string
		want         backends.Reason
	}{
		{"CONTENT_REJECTED", "TASK_FAILED", backends.ContentRejected},
		{"INVALID_INPUT", "TASK_FAILED", backends.InvalidInput},
		{"UPSTREAM_BUSY", "TASK_FAILED", backends.UpstreamBusy},
		{"MODEL_FAILED", "TASK_FAILED", backends.ModelFailed},
		{"TASK_TIMEOUT", "TASK_FAILED", backends.TaskTimeout},
		{"TASK_CANCELLED", "TASK_FAILED", backends.TaskCancelled},
		{"UPSTREAM_ERROR", "TASK_FAILED", backends.UpstreamError},
		{"NEW_REASON", "TASK_FAILED", backends.ModelFailed},
		{"", "CONTENT_REJECTED", backends.ContentRejected},
		{"", "", backends.ModelFailed},
	} {
		var x task
		x.Status = "failed"
		x.Error.Reason, x.Error.Code = "", ""
		raw := fmt.Sprintf(`{"status":"failed","error":{"reason":%q,"code":%q}}`, row.reason, row.code)
		if err := json.Unmarshal([]byte(raw), &x); err != nil {
			t.Fatal(err)
		}
		if got := p.status(x, backends.VideoFile); got.State != backends.Failed || got.Failure.Reason != row.want {
			t.Errorf("%s: %+v", raw, got.Failure)
		}
	}
	pending := p.status(task{Status: "pending"}, backends.VideoFile)
	if pending.State != backends.Queued {
		t.Errorf("the status of a pending task is %+v", pending)
	}
}

// signed returns a callback that was signed with secret at a time.
func signed(body string, at time.Time, secret string) backends.Notification {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("msg_1." + stamp + "." + body))
	h := make(http.Header)
	h.Set("webhook-id", "msg_1")
	h.Set("webhook-timestamp", stamp)
	h.Set("webhook-signature", "v1,AAAA v1a,x v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return backends.Notification{Method: http.MethodPost, Header: h, Body: []byte(body), Now: time.Unix(1_800_000_000, 0)}
}

func TestACallbackNamesTheTaskToPoll(t *testing.T) {
	t.Parallel()
	p := newAdapter(t, "https://x.example")
	now := time.Unix(1_800_000_000, 0)
	const good = `{"type":"task.succeeded","data":{"task_id":"task_9"}}`
	if id, err := p.Notice(signed(good, now, secret)); err != nil || id != "task_9" {
		t.Errorf("%q, %v", id, err)
	}
	forged := signed(good, now, secret)
	forged.Body = []byte(strings.Replace(good, "9", "8", 1))
	unsigned := signed(good, now, secret)
	unsigned.Header.Del("Webhook-Signature")
	withoutID := signed(good, now, secret)
	withoutID.Header.Del("Webhook-Id")
	for name, n := range map[string]backends.Notification{
		"a changed body": forged,
		"no signature":   unsigned,
		"no id":          withoutID,
		"another secret": signed(good, now, "whsec_b3RoZXJvdGhlcm90aGVyb3RoZXI="),
		"no secret":      signed(good, now, ""),
		"too old":        signed(good, now.Add(-301*time.Second), secret),
		"in the future":  signed(good, now.Add(301*time.Second), secret),
		"not JSON":       signed("x", now, secret),
		"another event":  signed(`{"type":"user.created","data":{"task_id":"task_9"}}`, now, secret),
		"without a task": signed(`{"type":"task.failed","data":{}}`, now, secret),
	} {
		if id, err := p.Notice(n); err == nil {
			t.Errorf("%s: %q", name, id)
		}
	}
	p.CallbackSecret = ""
	if id, err := p.Notice(signed(good, now, "")); err == nil {
		t.Errorf("without a secret the callback for %q is accepted", id)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *Platform { return new(Platform) }, map[string]string{
		"platform": `{}`,
		"platform {\nurl https://x\nkey k\ncallback_secret s\nmodel a b\n}": `{"url":"https://x","key":"k","callback_secret":"s","models":{"a":"b"}}`,
		"platform {\nkey hush\nkey hush\n}":                                 ``,
		"platform {\nsecret hush\n}":                                        ``,
		"platform hush":                                                     ``,
	})
	for name, bad := range map[string]*Platform{
		"no key":       {URL: "https://x.example"},
		"no URL":       {Key: key},
		"a bad URL":    {URL: "x.example", Key: key},
		"a bad secret": {URL: "https://x.example", Key: key, CallbackSecret: "hush"},
		"short secret": {URL: "https://x.example", Key: key, CallbackSecret: "whsec_aHVzaA=="},
	} {
		if err := paymentstest.Provision(t, bad); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPendingCancellationIsNotConfirmed(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]backends.Kind{
		`{"task_id":"x","status":"in_progress"}`: backends.Unconfirmed,
		`{"task_id":"x","status":"success"}`:     backends.Refused,
		`{}`:                                     backends.Unconfirmed,
		`{"status":"levitating"}`:                backends.Unconfirmed,
		`<html>`:                                 backends.Unconfirmed,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		t.Cleanup(server.Close)
		err := newAdapter(t, server.URL).Cancel(t.Context(), backends.Ref{ID: "x"})
		if e := backendstest.CheckError(t, err, key); e == nil || e.Kind != want {
			t.Errorf("the error after %s is %v, want %s", answer, err, want)
		}
	}
}
