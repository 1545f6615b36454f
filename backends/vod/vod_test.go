package vod

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/backendstest"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

const (
	id  = "AKIDexample"
	key = "hushhushhushhush"
)

// mockService simulates VOD.
type mockService struct {
	backendstest.Jobs
	hideTasks bool // the list of tasks is empty

	mu     sync.Mutex
	action string
	body   string
}

// Op implements backendstest.MockService.
func (*mockService) Op(r *http.Request) backendstest.Op {
	switch r.Header.Get("X-TC-Action") {
	case "CreateAigcVideoTask", "CreateAigcImageTask":
		return backendstest.Submit
	case "DescribeTaskDetail":
		return backendstest.Poll
	}
	return backendstest.Other
}

// SetResultURL implements backendstest.ResultURLSetter.
func (d *mockService) SetResultURL(address string) { d.SetURL(address) }

var vendor = map[backends.State]string{
	backends.Queued: "WAITING", backends.Running: "PROCESSING", backends.Succeeded: "FINISH", backends.Failed: "FINISH",
}

// refuse answers with an error, with status 200 like the service.
func refuse(w http.ResponseWriter, code, message string) {
	backendstest.JSON(w, 200, `{"Response":{"Error":{"Code":%q,"Message":%q},"RequestId":"r"}}`, code, message)
}

func (d *mockService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var seconds int64
	_, _ = fmt.Sscan(r.Header.Get("X-TC-Timestamp"), &seconds)
	action := r.Header.Get("X-TC-Action")
	want := authorization("vod", r.Host, raw, id, key, time.Unix(seconds, 0))
	if r.Header.Get("Authorization") != want || r.Header.Get("X-TC-Version") != "2018-07-17" || r.URL.Path != "/" {
		refuse(w, "AuthFailure.SignatureFailure", "The provided credentials could not be validated.")
		return
	}
	var body struct {
		SubAppID  uint64 `json:"SubAppId"`
		TaskID    string `json:"TaskId"`
		SessionID string `json:"SessionId"`
		Prompt    string
	}
	if json.Unmarshal(raw, &body) != nil || body.SubAppID != 1500 {
		refuse(w, "InvalidParameterValue.SubAppId", "SubAppId")
		return
	}
	switch action {
	case "CreateAigcVideoTask", "CreateAigcImageTask":
		switch {
		case len(body.SessionID) > 50:
			refuse(w, "InvalidParameterValue.SessionIdTooLong", "SessionId")
		case d.Find(body.SessionID) != "":
			refuse(w, "FailedOperation.TaskDuplicate", "duplicate")
		case body.Prompt == "gore":
			refuse(w, "InvalidParameter.VoilationContent", "violates")
		default:
			d.mu.Lock()
			d.action, d.body = action, string(raw)
			d.mu.Unlock()
			backendstest.JSON(w, 200, `{"Response":{"TaskId":%q,"RequestId":"r"}}`, d.Accept(body.SessionID))
		}
	case "DescribeTasks":
		set := ""
		if found := d.Find(backends.Token("accepted")); found != "" && !d.hideTasks {
			set = fmt.Sprintf(`{"TaskId":"another","SessionId":"another"},{"TaskId":"none"},{"TaskId":%q,"SessionId":%q,"Status":"WAITING"}`, found, backends.Token("accepted"))
		}
		backendstest.JSON(w, 200, `{"Response":{"TaskSet":[%s],"ScrollToken":"","RequestId":"r"}}`, set)
	case "DescribeTaskDetail":
		d.writeJob(w, body.TaskID)
	default:
		refuse(w, "InvalidAction", "no such action")
	}
}

func (d *mockService) writeJob(w http.ResponseWriter, task string) {
	if !d.Exists(task) {
		refuse(w, "InvalidParameterValue.TaskId", "task not found")
		return
	}
	state, word := d.State(vendor)
	status, _ := json.Marshal(word)
	link, _ := json.Marshal(d.URL())
	inner, rest := "PROCESSING", `"ErrCode":0,"ErrCodeExt":"","Message":"","Progress":0,"Output":null`
	switch state {
	case backends.Running:
		rest = `"ErrCode":0,"ErrCodeExt":"","Message":"","Progress":30,"Output":null`
	case backends.Succeeded:
		inner, rest = "FINISH", fmt.Sprintf(`"ErrCode":0,"ErrCodeExt":"","Message":"","Progress":100,"Output":{"FileInfos":[{"StorageMode":"Temporary","FileUrl":%s,
			"FileType":"mp4","MetaData":{"Duration":5.1,"Width":1280,"Height":720}}],"Usage":null}`, link)
	case backends.Failed:
		inner, rest = "FINISH", `"ErrCode":70000,"ErrCodeExt":"InvalidParameter.VoilationContent","Message":"unsafe","Progress":100,"Output":null`
	}
	backendstest.JSON(w, 200, `{"Response":{"TaskType":"AigcVideoTask","Status":%s,"AigcImageTask":null,"AigcVideoTask":{"TaskId":%q,"Status":%q,%s,"SessionId":"s"},"RequestId":"r"}}`,
		status, task, inner, rest)
}

func newAdapter(t *testing.T, address string) *VOD {
	t.Helper()
	v := &VOD{URL: address, SecretID: id, SecretKey: key, SubAppID: "1500", Models: map[string]string{"video-ours-1": "Kling/3.0-Omni"}}
	if err := paymentstest.Provision(t, v); err != nil {
		t.Fatal(err)
	}
	return v
}

func job() backends.Job {
	return backends.Job{Token: backends.Token("task_1"), Kind: backends.Video, Model: "video-kling-2.1", Prompt: "a fox", Output: backends.Output{Duration: 5}}
}

func newMockService() *mockService {
	d := new(mockService)
	d.SetURL(backendstest.DefaultURL)
	return d
}

func TestConformance(t *testing.T) {
	t.Parallel()
	backendstest.Run(t, backendstest.Service{
		Mock:    func() backendstest.MockService { return newMockService() },
		Backend: func(t *testing.T, address string) backends.Backend { return newAdapter(t, address) },
		Job:     job(), Secret: key,
	})
}

// TestTheSignatureMatchesTencentsExample compares the signature with the example of
// Tencent's documentation, which is a call of another service.
func TestTheSignatureMatchesTencentsExample(t *testing.T) {
	t.Parallel()
	body := []byte(`{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}`)
	got := authorization("cvm", "cvm.tencentcloudapi.com", body,
		"AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE", "Gu5t9xGARNpq86cd98joQYCN3EXAMPLE", time.Unix(1551113065, 0))
	const want = "TC3-HMAC-SHA256 Credential=AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE/2019-02-25/cvm/tc3_request, " +
		"SignedHeaders=content-type;host, Signature=72e494ea809ad7a8c8f7a4507b9bddcbaa8e581f516e8da2f66e2c5a96525168"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestEveryFieldIsTranslated(t *testing.T) {
	t.Parallel()
	seed := int64(-7)
	full := backends.Job{
		Token: "tok", Kind: backends.Video, Model: "video-kling-2.1", Prompt: "<a> fox", NegativePrompt: "b",
		EnhancePrompt: "enabled",
		Inputs: []backends.Input{
			{URL: "https://x.example/a.png", Category: "image", ReferenceType: "asset", ObjectID: "o", VoiceID: "v", Usage: "firstFrame", Text: "t"},
			{URL: "https://x.example/b.mp4", Category: "video", ReferenceType: "base", KeepOriginalSound: "disabled", Usage: "reference"},
			{URL: "https://x.example/c.png", Category: "image", Usage: "lastFrame"},
			{URL: "https://x.example/d.png", Category: "image"},
		},
		SubjectInputs: []backends.SubjectInput{{URL: "https://x.example/s.png", ID: "i", Name: "n"}},
		Output: backends.Output{
			Duration: 5, Resolution: "720P", AspectRatio: "16:9", AudioGeneration: "enabled", EnhanceSwitch: "disabled",
			FrameInterpolate: "enabled", MediaName: "m", ClassID: 3,
		},
		SceneType: "lip_sync", InputRegion: "oversea", Seed: &seed, ExtInfo: json.RawMessage(`{"a":1.50}`),
	}
	for name, row := range map[string]struct {
		change func(*backends.Job)
		action string
		want   string // the body, or the param that is refused
	}{
		"video": {func(*backends.Job) {}, "CreateAigcVideoTask", `{"SubAppId":1500,"ModelName":"Kling","ModelVersion":"2.1","Prompt":"<a> fox","NegativePrompt":"b","EnhancePrompt":"Enabled",
			"FileInfos":[{"Type":"Url","Category":"Image","Url":"https://x.example/a.png","ReferenceType":"asset","ObjectId":"o","VoiceId":"v","Usage":"FirstFrame","Text":"t"},
			{"Type":"Url","Category":"Video","Url":"https://x.example/b.mp4","ReferenceType":"base","KeepOriginalSound":"Disabled","Usage":"Reference"},
			{"Type":"Url","Category":"Image","Url":"https://x.example/c.png","Usage":"LastFrame"},
			{"Type":"Url","Category":"Image","Url":"https://x.example/d.png","Usage":"Reference"}],
			"SubjectInfos":[{"Id":"i","Name":"n","ImageUrls":["https://x.example/s.png"]}],
			"OutputConfig":{"StorageMode":"Temporary","MediaName":"m","ClassId":3,"Duration":5,"Resolution":"720P","AspectRatio":"16:9","AudioGeneration":"Enabled","EnhanceSwitch":"Disabled","FrameInterpolate":"Enabled"},
			"InputRegion":"Oversea","SceneType":"lip_sync","Seed":-7,"SessionId":"tok","ExtInfo":"{\"a\":1.50}"}`},
		"image": {func(j *backends.Job) {
			*j = backends.Job{
				Token: "tok", Kind: backends.Image, Model: "image-qwen-1.0", Prompt: "p", InputRegion: "mainland", EnhancePrompt: "disabled",
				Inputs: []backends.Input{{URL: "https://x.example/m.png", ReferenceType: "mask", Text: "t"}},
				Output: backends.Output{Resolution: "1K", Count: 3, Format: "jpeg"},
			}
		}, "CreateAigcImageTask", `{"SubAppId":1500,"ModelName":"Qwen","ModelVersion":"1.0","Prompt":"p","EnhancePrompt":"Disabled","InputRegion":"Mainland","SessionId":"tok",
			"FileInfos":[{"Type":"Url","Url":"https://x.example/m.png","ReferenceType":"mask","Text":"t"}],
			"OutputConfig":{"StorageMode":"Temporary","Resolution":"1K","OutputImageCount":3,"OutputFormat":"jpeg"}}`},
		"generations": {func(j *backends.Job) {
			*j = backends.Job{
				Token: "tok", Kind: backends.Generations, Model: "video-ours-1", Prompt: "p",
				Inputs: []backends.Input{{URL: "data:image/png;base64,AA=="}, {URL: "BB=="}}, Output: backends.Output{Count: 1},
			}
		}, "CreateAigcVideoTask", `{"SubAppId":1500,"ModelName":"Kling","ModelVersion":"3.0-Omni","Prompt":"p","SessionId":"tok",
			"FileInfos":[{"Type":"Base64","Base64":"AA==","Usage":"Reference"},{"Type":"Base64","Base64":"BB==","Usage":"Reference"}],"OutputConfig":{"StorageMode":"Temporary"}}`},
		"another version": {func(j *backends.Job) {
			*j = backends.Job{Kind: backends.Video, Model: "video-Vidu-q2-pro", Token: "tok"}
		}, "CreateAigcVideoTask", `{"SubAppId":1500,"ModelName":"Vidu","ModelVersion":"q2-pro","SessionId":"tok","OutputConfig":{"StorageMode":"Temporary"}}`},
		"a mode": {func(j *backends.Job) { j.GenerationMode = "text-to-video" }, "", "generation_mode"},
		"metadata": {func(j *backends.Job) {
			j.Kind, j.Fields = backends.Generations, map[string]json.RawMessage{"metadata": json.RawMessage(`{"style":"x"}`)}
		}, "", "metadata.style"},
		"2.5 seconds":    {func(j *backends.Job) { j.Output.Duration = 2.5 }, "", "output.duration"},
		"two videos":     {func(j *backends.Job) { j.Output.Count = 2 }, "", "output.count"},
		"n is 2":         {func(j *backends.Job) { j.Kind, j.Output.Count = backends.Generations, 2 }, "", "n"},
		"a width":        {func(j *backends.Job) { j.Output.Width = 2 }, "", "output.width"},
		"a height":       {func(j *backends.Job) { j.Output.Height = 2 }, "", "output.width"},
		"a frame rate":   {func(j *backends.Job) { j.Output.FPS = 2 }, "", "output.width"},
		"unknown model":  {func(j *backends.Job) { j.Model = "video-wan-2.2" }, "", "model"},
		"no version":     {func(j *backends.Job) { j.Model = "video-kling" }, "", "model"},
		"an empty model": {func(j *backends.Job) { j.Model = "" }, "", "model"},
	} {
		d := newMockService()
		server := httptest.NewServer(d)
		t.Cleanup(server.Close)
		j := full
		row.change(&j)
		_, err := newAdapter(t, server.URL).Submit(t.Context(), j)
		if err != nil {
			if e := backendstest.CheckError(t, err, key); e == nil || e.Kind != backends.Refused || e.Param != row.want {
				t.Errorf("%s: %v, want %s", name, err, row.want)
			}
			continue
		}
		var got, want any
		if json.Unmarshal([]byte(d.body), &got) != nil || json.Unmarshal([]byte(row.want), &want) != nil || !reflect.DeepEqual(got, want) || d.action != row.action {
			t.Errorf("%s: sent %s\n%s, want %s\n%s", name, d.action, d.body, row.action, row.want)
		}
	}
}

func TestModelNamesAreMapped(t *testing.T) {
	t.Parallel()
	v := newAdapter(t, "https://x.example")
	for _, theirs := range []string{"Hailuo", "Kling", "Vidu", "GV", "OS", "Hunyuan", "Mingmou", "PixVerse", "Jimeng", "OG", "GG", "SI", "Qwen"} {
		name, version, err := v.model("video-" + strings.ToLower(theirs) + "-1.0-x")
		if err != nil || name != theirs || version != "1.0-x" {
			t.Errorf("%s: %s %s, %v", theirs, name, version, err)
		}
	}
}

func TestErrorCodesAreFoundByPrefix(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		submit, poll backends.Kind
		reason       backends.Reason
	}{
		"RequestLimitExceeded":                   {backends.Busy, backends.Busy, backends.UpstreamBusy},
		"RequestLimitExceeded.UinLimitExceeded":  {backends.Busy, backends.Busy, backends.UpstreamBusy},
		"LimitExceeded.Quota":                    {backends.Busy, backends.Busy, backends.UpstreamBusy},
		"InvalidParameter":                       {backends.Refused, backends.Busy, backends.InvalidInput},
		"InvalidParameter.VoilationContent":      {backends.Refused, backends.Busy, backends.ContentRejected},
		"InvalidParameterValue":                  {backends.Refused, backends.Busy, backends.InvalidInput},
		"InvalidParameterValue.SessionIdTooLong": {backends.Refused, backends.Busy, backends.InvalidInput},
		"InvalidParameterValue.TaskId":           {backends.Refused, backends.Gone, backends.UpstreamError},
		"MissingParameter":                       {backends.Refused, backends.Busy, backends.InvalidInput},
		"UnknownParameter":                       {backends.Refused, backends.Busy, backends.InvalidInput},
		"ResourceNotFound.Task":                  {backends.Refused, backends.Gone, backends.UpstreamError},
		"ResourceInsufficient":                   {backends.Refused, backends.Busy, backends.UpstreamError},
		"AuthFailure.SignatureFailure":           {backends.Refused, backends.Refused, backends.UpstreamError},
		"UnauthorizedOperation":                  {backends.Refused, backends.Refused, backends.UpstreamError},
		"UnsupportedOperation":                   {backends.Refused, backends.Busy, backends.UpstreamError},
		"FailedOperation.TaskDuplicate":          {backends.Unconfirmed, backends.Busy, backends.UpstreamError},
		"FailedOperation":                        {backends.Unconfirmed, backends.Busy, backends.UpstreamBusy},
		"InternalError.Deep.Down":                {backends.Unconfirmed, backends.Busy, backends.UpstreamError},
		"SomethingNew":                           {backends.Unconfirmed, backends.Busy, backends.ModelFailed},
		"RequestLimitExceededX":                  {backends.Unconfirmed, backends.Busy, backends.ModelFailed},
		"":                                       {backends.Unconfirmed, backends.Busy, backends.ModelFailed},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, text, "no") }))
		t.Cleanup(server.Close)
		v := newAdapter(t, server.URL)
		_, err := v.Submit(t.Context(), job())
		if e := backendstest.CheckError(t, err, key); e == nil || e.Kind != want.submit || e.Reason != want.reason {
			t.Errorf("submit: the error for %q is %v, want %v", text, err, want)
		}
		if _, err := v.Poll(t.Context(), backends.Ref{ID: "x"}); backends.KindOf(err) != want.poll {
			t.Errorf("poll: the error for %q is %v, want %v", text, err, want)
		}
	}
}

func TestFinishIsNotSuccess(t *testing.T) {
	t.Parallel()
	v := newAdapter(t, "https://x.example")
	const files = `"Output":{"FileInfos":[{"FileUrl":"https://x.example/a.mp4","MetaData":{"Duration":5.1,"Width":1280,"Height":720}},{"FileUrl":"https://x.example/b.mp4"}],"Usage":12}`
	for row, want := range map[[2]string]struct {
		state  backends.State
		reason backends.Reason
	}{
		{"WAITING", `{"Status":"PROCESSING"}`}:                      {backends.Queued, ""},
		{"PROCESSING", `{"Status":"PROCESSING","Progress":30}`}:     {backends.Running, ""},
		{"PROCESSING", `{"Status":"FINISH","ErrCode":1}`}:           {backends.Running, ""},
		{"FINISH", `{"Status":"FINISH","ErrCode":0,` + files + `}`}: {backends.Succeeded, ""},
		{"finish", `{"Status":"Finish",` + files + `}`}:             {backends.Succeeded, ""},
		{"FINISH", `{"Status":"PROCESSING",` + files + `}`}:         {backends.Unknown, ""},
		{"FINISH", `null`}: {backends.Unknown, ""},
		{"FINISH", `{"Status":"FINISH","ErrCode":0}`}:                                                  {backends.Unknown, ""},
		{"FINISH", `{"Status":"FINISH","ErrCode":70000,` + files + `}`}:                                {backends.Failed, backends.ModelFailed},
		{"FINISH", `{"Status":"FINISH","ErrCodeExt":"InternalError",` + files + `}`}:                   {backends.Failed, backends.UpstreamError},
		{"FINISH", `{"Status":"FINISH","ErrCode":1,"ErrCodeExt":"RequestLimitExceeded"}`}:              {backends.Failed, backends.UpstreamBusy},
		{"FINISH", `{"Status":"FINISH","ErrCode":1,"ErrCodeExt":"InvalidParameter.VoilationContent"}`}: {backends.Failed, backends.ContentRejected},
		{"FINISH", `{"Status":"FINISH","ErrCode":1,"ErrCodeExt":"InvalidParameterValue"}`}:             {backends.Failed, backends.InvalidInput},
		{"FINISH", `{"Status":"FINISH","ErrCode":1,"ErrCodeExt":"FailedOperation"}`}:                   {backends.Failed, backends.UpstreamBusy},
		{"ABORTED", `{"Status":"FINISH",` + files + `}`}:                                               {backends.Failed, backends.ModelFailed},
		{"PAUSED", `{"Status":"FINISH",` + files + `}`}:                                                {backends.Unknown, ""},
	} {
		var inner *task
		if err := json.Unmarshal([]byte(row[1]), &inner); err != nil {
			t.Fatal(err)
		}
		got := v.status(row[0], inner, backends.VideoFile)
		backendstest.CheckStatus(t, got, key)
		if got.State != want.state || got.Failure != nil && got.Failure.Reason != want.reason {
			t.Errorf("the status of %v is %+v %+v", row, got, got.Failure)
		}
		if got.State != backends.Succeeded {
			continue
		}
		first := backends.Result{URL: "https://x.example/a.mp4", Type: backends.VideoFile, Duration: 5.1, Width: 1280, Height: 720, Format: "mp4"}
		if len(got.Results) != 2 || got.Results[0] != first || got.Cost != (backends.Cost{Amount: "12", Unit: "units"}) {
			t.Errorf("the status of %v is %+v", row, got)
		}
	}
}

func TestADuplicateThatIsNotListedIsUnconfirmed(t *testing.T) {
	t.Parallel()
	d := newMockService()
	d.hideTasks = true
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	v := newAdapter(t, server.URL)
	if _, err := v.Submit(t.Context(), job()); err != nil {
		t.Fatal(err)
	}
	if ref, err := v.Reconcile(t.Context(), job()); backends.KindOf(err) != backends.Unconfirmed {
		t.Errorf("%+v, %v", ref, err)
	}
	if n := d.Accepted(); n != 1 {
		t.Errorf("the service has %d jobs, want 1", n)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *VOD { return new(VOD) }, map[string]string{
		"vod": `{}`,
		"vod {\nurl https://x\nsecret_id i\nsecret_key k\nsub_app_id 7\nmodel a b/c\n}": `{"url":"https://x","secret_id":"i","secret_key":"k","sub_app_id":"7","models":{"a":"b/c"}}`,
		"vod {\nsecret_key hush\nsecret_key hush\n}":                                    ``,
		"vod {\nkey hush\n}": ``,
		"vod hush":           ``,
	})
	for name, change := range map[string]func(*VOD){
		"no id":            func(v *VOD) { v.SecretID = "" },
		"no key":           func(v *VOD) { v.SecretKey = "" },
		"no application":   func(v *VOD) { v.SubAppID = "" },
		"application mine": func(v *VOD) { v.SubAppID = "mine" },
		"application -1":   func(v *VOD) { v.SubAppID = "-1" },
		"a bad URL":        func(v *VOD) { v.URL = "x" },
		"no slash":         func(v *VOD) { v.Models = map[string]string{"a": "Kling"} },
		"no model name":    func(v *VOD) { v.Models = map[string]string{"a": "/1"} },
		"no model version": func(v *VOD) { v.Models = map[string]string{"a": "Kling/"} },
	} {
		v := &VOD{SecretID: id, SecretKey: key, SubAppID: "1500"}
		change(v)
		if err := paymentstest.Provision(t, v); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", name, err)
		}
	}
	v := &VOD{SecretID: id, SecretKey: key, SubAppID: "1500"}
	if err := paymentstest.Provision(t, v); err != nil || v.client.Base != defaultURL || v.app != 1500 {
		t.Error(err)
	}
}
