package wire_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/backendstest"
	"github.com/caddy-modelgate/modelgate/backends/wire"
	"github.com/caddy-modelgate/modelgate/settings"
)

const secret = "hushhushhush"

func client(t *testing.T, base string) *wire.Client {
	t.Helper()
	c := wire.Connect(wire.Client{Service: "the service", Base: base, Secret: secret, Authorize: wire.Bearer(secret)})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestEveryStatusHasTheKindOfItsOperation has a row for each status, with one kind for
// each operation.
func TestEveryStatusHasTheKindOfItsOperation(t *testing.T) {
	t.Parallel()
	const r, b, d, g = backends.Refused, backends.Busy, backends.Unconfirmed, backends.Gone
	operations := []wire.Operation{wire.Submitting, wire.Polling, wire.Fetching, wire.Cancelling, wire.Checking}
	rows := map[int][5]backends.Kind{
		301: {r, b, b, r, b}, 302: {d, b, b, r, b}, 303: {d, b, b, r, b}, 304: {d, b, b, r, b}, 307: {r, b, b, r, b}, 308: {r, b, b, r, b},
		400: {r, r, r, r, r}, 401: {r, r, r, r, r}, 402: {r, r, r, r, r}, 403: {r, r, r, r, r}, 404: {r, g, g, g, r}, 405: {r, r, r, r, r},
		408: {b, b, b, b, b}, 409: {d, b, b, r, b}, 410: {r, g, g, g, r}, 413: {r, r, r, r, r}, 422: {r, r, r, r, r}, 425: {b, b, b, b, b},
		429: {b, b, b, b, b}, 499: {r, r, r, r, r}, 500: {d, b, b, d, b}, 501: {d, b, b, d, b}, 503: {d, b, b, d, b}, 599: {d, b, b, d, b},
		600: {d, b, b, d, b},
	}
	c := client(t, "https://x.example")
	for status, kinds := range rows {
		for i, op := range operations {
			e := c.StatusError(op, wire.Response{Status: status}, wire.Explanation{})
			backendstest.CheckError(t, e, secret)
			if e.Kind != kinds[i] {
				t.Errorf("%d of operation %d is %s, want %s", status, op, e.Kind, kinds[i])
			}
		}
	}
}

func TestReasonsOfRefusals(t *testing.T) {
	t.Parallel()
	c := client(t, "https://x.example")
	for _, row := range []struct {
		status      int
		explanation wire.Explanation
		reason      backends.Reason
		shown       bool // the message contains the service's text
	}{
		{400, wire.Explanation{}, backends.InvalidInput, true},
		{422, wire.Explanation{}, backends.InvalidInput, true},
		{413, wire.Explanation{}, backends.InvalidInput, true},
		{400, wire.Explanation{Reason: backends.ContentRejected}, backends.ContentRejected, true},
		{400, wire.Explanation{Reason: backends.UpstreamError}, backends.UpstreamError, false},
		{401, wire.Explanation{}, backends.UpstreamError, false},
		{402, wire.Explanation{}, backends.UpstreamError, false},
		{403, wire.Explanation{}, backends.UpstreamError, false},
		{403, wire.Explanation{Reason: backends.ContentRejected}, backends.ContentRejected, true},
		{404, wire.Explanation{}, backends.UpstreamError, false},
		{405, wire.Explanation{}, backends.UpstreamError, false},
		{407, wire.Explanation{}, backends.UpstreamError, false},
		{421, wire.Explanation{}, backends.UpstreamError, false},
		{308, wire.Explanation{}, backends.UpstreamError, false},
		{429, wire.Explanation{}, backends.UpstreamBusy, false},
		{429, wire.Explanation{Reason: backends.InvalidInput}, backends.InvalidInput, false},
		{500, wire.Explanation{}, backends.UpstreamError, false},
		{200, wire.Explanation{Kind: backends.Refused, Reason: backends.InvalidInput}, backends.InvalidInput, true},
	} {
		row.explanation.Message = "the text of the service"
		e := c.StatusError(wire.Submitting, wire.Response{Status: row.status}, row.explanation)
		if account := row.status >= 401 && row.status <= 403 && !row.shown; account != strings.Contains(e.Message, "account") {
			t.Errorf("%d has the message %q", row.status, e.Message)
		}
		if e.Reason != row.reason || strings.Contains(e.Message, row.explanation.Message) != row.shown || !strings.Contains(e.Detail, row.explanation.Message) {
			t.Errorf("%d %+v is %+v", row.status, row.explanation, e)
		}
	}
}

func TestTheCredentialIsRemovedBeforeATextIsCut(t *testing.T) {
	t.Parallel()
	c := client(t, "https://x.example")
	for pad := range len(secret) + 4 {
		f := c.Failure(backends.InvalidInput, "", strings.Repeat("x", backends.MaxText-pad)+secret)
		for length := 4; length <= len(secret); length++ {
			if strings.HasSuffix(f.Message, secret[:length]) {
				t.Errorf("the credential begins %d bytes before the limit: the message ends with %q", pad, f.Message[backends.MaxText-pad:])
			}
		}
	}
}

func TestOnlyHTTPURLsAreLinks(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"https://x.example/a.mp4?x=%20#f":                   true,
		"http://[::1]:80/":                                  true,
		"https://x.example/" + strings.Repeat("a", 8192-18): true,
		"https://x.example/" + strings.Repeat("a", 8192):    false,
		"https://x.example/é":                               false,
		"":                                                  false,
		"https://:80":                                       false,
		"https://u@x.example":                               false,
		"httpsx://x.example":                                false,
		"https:x.example":                                   false,
		" https://x.example":                                false,
	} {
		if got := wire.Link(address); (got != "") != want || got != "" && got != address {
			t.Errorf("Link(%.60q) is %q", address, got)
		}
	}
}

// FuzzLink checks that Link returns an http or https URL or nothing, for any
// text.
func FuzzLink(f *testing.F) {
	for _, address := range []string{"https://x.example/a", "javascript:x", "https://u:p@x", "//x", "http://\x00"} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		link := wire.Link(address)
		if link == "" {
			return
		}
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, link, nil)
		if err != nil || r.URL.Host == "" || r.URL.User != nil || r.URL.Scheme != "http" && r.URL.Scheme != "https" {
			t.Errorf("Link accepts %q: %v", address, err)
		}
	})
}

func TestAnyJSONDecodesAsNumberCostOrObject(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]float64{
		`50`: 50, `"50%"`: 50, `"50"`: 50, `12.5`: 12.5, `"100%"`: 100, `-1`: -1, `1e300`: 1e300,
		`null`: 0, `""`: 0, `"x"`: 0, `true`: 0, `{}`: 0, `[1]`: 0, `"NaN"`: 0, `"Inf"`: 0, `1e999`: 0,
	} {
		var n wire.Number
		if err := json.Unmarshal([]byte(raw), &n); err != nil || float64(n) != want {
			t.Errorf("%s is %g, %v", raw, n, err)
		}
	}
	for n, want := range map[wire.Number][3]float64{ // percent, pixels, seconds
		0: {0, 0, 0}, 50.9: {50, 50, 50.9}, -1: {0, 0, 0}, 101: {100, 101, 101}, 65536: {100, 65536, 65536}, 65537: {100, 0, 65537},
		86400: {100, 0, 86400}, 86401: {100, 0, 0}, math.MaxFloat64: {100, 0, 0},
	} {
		if got := [3]float64{float64(n.Percent()), float64(n.Pixels()), n.Seconds()}; got != want {
			t.Errorf("%g is %v, want %v", n, got, want)
		}
	}
	for raw, want := range map[string]string{`12.50`: "12.50", `"3"`: "3", `null`: "", ``: "", `"x"`: "", `{}`: "", `1e999`: "", `0.` + strings.Repeat("1", 31): ""} {
		if got := wire.Cost(json.RawMessage(raw), "u"); got.Amount != want || (got.Unit != "") != (want != "") {
			t.Errorf("%s costs %+v", raw, got)
		}
	}
	var o wire.Object
	for raw, want := range map[string]string{`{"a":"x"}`: "x", `{"a":1}`: "", `[]`: "", `null`: "", `"x"`: ""} {
		if err := json.Unmarshal([]byte(raw), &o); err != nil || o.Text("a") != want {
			t.Errorf("%s has %q, %v", raw, o.Text("a"), err)
		}
	}
}

func TestErrorsAreReadAtTheTopLevelAndNested(t *testing.T) {
	t.Parallel()
	explain := wire.Codes{"known": backends.ContentRejected}.Explain()
	for body, want := range map[string]wire.Explanation{
		`{"error":{"code":"KNOWN","message":"m","param":"p"}}`: {Code: "KNOWN", Message: "m", Param: "p", Reason: backends.ContentRejected},
		`{"error":{"code":null,"type":"known","message":"m"}}`: {Code: "known", Message: "m", Reason: backends.ContentRejected},
		`{"error":"m"}`: {Message: "m"},
		`{"code":"known","message":"m","param":"p","type":"t"}`:            {Code: "known", Message: "m", Param: "p", Reason: backends.ContentRejected},
		`{"code":"A","message":"m","error":{"code":"B","message":"n"}}`:    {Code: "B", Message: "n"},
		`{"code":"A","error":{"code":"A","reason":"known","message":"n"}}`: {Code: "A", Message: "n", Reason: backends.ContentRejected},
		`{"error":7,"message":[]}`:                                         {},
		`[]`:                                                               {}, ``: {}, `<html>`: {}, `null`: {}, `"x"`: {},
	} {
		if got := explain(400, []byte(body)); got != want {
			t.Errorf("%s is %+v, want %+v", body, got, want)
		}
	}
}

func TestLinksAreFoundInAnyOutput(t *testing.T) {
	t.Parallel()
	const a, b = "https://x.example/a", "https://x.example/b"
	many := strings.Repeat(`"`+a+`",`, 200)
	for raw, want := range map[string][2][]string{ // the links in all members, and those in members named url
		`"` + a + `"`:                         {{a}, nil},
		`["` + a + `","x","` + b + `"]`:       {{a, b}, nil},
		`{"b":"` + b + `","a":["` + a + `"]}`: {{a, b}, nil},
		`{"v":{"url":"` + b + `"},"i":[{"url":"` + a + `"}],"x":"` + a + `"}`: {{a, b, a}, {a, b}},
		`{"url":["` + a + `"]}`: {{a}, {a}},
		`null`:                  {}, ``: {}, `{`: {}, `7`: {}, `{"url":"javascript:x"}`: {},
		`[` + many + `1]`: {slices.Repeat([]string{a}, 100), nil},
	} {
		for i, key := range []string{"", "url"} {
			if got := wire.Links(json.RawMessage(raw), key); !slices.Equal(got, want[i]) {
				t.Errorf("the links of %.80s with the key %q are %q, want %q", raw, key, got, want[i])
			}
		}
	}
}

func TestModelNamesAreMappedOrLoseTheirPrefix(t *testing.T) {
	t.Parallel()
	models := wire.Models{"video-a": "b"}
	for ours, want := range map[string]string{
		"video-a": "b", "video-wan-2.2": "wan-2.2", "image-x-1": "x-1", "wan-2.2": "wan-2.2", "video-": "video-", "": "", "video-image-1": "image-1",
	} {
		if got := models.Name(ours); got != want {
			t.Errorf("the name of %s is %s, want %s", ours, got, want)
		}
	}
}

func TestEveryFieldOfAJobIsSentOrRefused(t *testing.T) {
	t.Parallel()
	seed := int64(7)
	job := backends.Job{
		Prompt: "p", NegativePrompt: "n", EnhancePrompt: "disabled", SceneType: "s", Seed: &seed,
		GenerationMode: "g", InputRegion: "oversea",
		Inputs: []backends.Input{
			{URL: "f", Usage: "firstFrame"}, {URL: "l", Usage: "lastFrame", ObjectID: "o", VoiceID: "vo"},
			{URL: "i", Category: "image", Usage: "reference", ReferenceType: "asset", Text: "t"},
			{URL: "v", Category: "video", Usage: "reference", KeepOriginalSound: "disabled"},
		},
		SubjectInputs: []backends.SubjectInput{{URL: "s", ID: "id", Name: "nm"}},
		Fields:        map[string]json.RawMessage{"response_format": json.RawMessage(`"b64"`), "user": json.RawMessage(`"u"`)},
		Output: backends.Output{
			Duration: 2.5, Resolution: "2K", AspectRatio: "1:1", AudioGeneration: "enabled", Count: 2, Format: "png", Width: 1, Height: 2, FPS: 3,
			EnhanceSwitch: "enabled", FrameInterpolate: "enabled", MediaName: "m", ClassID: 4,
		},
	}
	want := map[string]any{
		"prompt": "p", "negative_prompt": "n", "enhance_prompt": false, "scene_type": "s", "seed": int64(7), "first_frame": "f", "last_frame": "l",
		"reference_images": []string{"i"}, "reference_videos": []string{"v"}, "subject_images": []string{"s"}, "duration": json.Number("2.5"),
		"resolution": "2k", "aspect_ratio": "1:1", "audio": true, "count": 2, "format": "png", "width": 1, "height": 2, "fps": 3,
		"generation_mode": "g", "input_region": "oversea", "enhance_switch": true, "frame_interpolate": true, "media_name": "m", "class_id": 4,
		"object_ids": []string{"", "o", "", ""}, "voice_ids": []string{"", "vo", "", ""}, "reference_types": []string{"", "", "asset", ""},
		"input_texts": []string{"", "", "t", ""}, "keep_original_sound": []string{"", "", "", "disabled"},
		"subject_ids": []string{"id"}, "subject_names": []string{"nm"}, "response_format": "b64", "user": "u",
	}
	names := make(wire.Names)
	for key := range want {
		names[key] = key
	}
	if err := wire.CheckNames(names); err != nil {
		t.Fatal(err)
	}
	if got, err := wire.Input(job, names, nil); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := wire.Input(backends.Job{Output: backends.Output{Count: 1}}, names, nil); err != nil || len(got) != 0 {
		t.Errorf("the input of an empty job is %v, %v", got, err)
	}

	// A requested field without a name is refused, except fields that the gateway handles
	// itself and disabled features.
	optional := []string{"enhance_prompt", "media_name", "user"}
	for key := range want {
		without := make(wire.Names)
		for name := range names {
			if name != key {
				without[name] = name
			}
		}
		got, err := wire.Input(job, without, nil)
		if slices.Contains(optional, key) != (err == nil) {
			t.Errorf("without a name for %s: %v", key, err)
		}
		if _, sent := got[key]; sent {
			t.Errorf("%s is sent without a name", key)
		}
		omitted, err := wire.Input(job, names, wire.Names{key: "-"})
		if _, sent := omitted[key]; sent || err != nil || len(omitted) != len(want)-1 {
			t.Errorf("with the name - for %s: %v, %v", key, omitted, err)
		}
	}
	if err := wire.CheckNames(wire.Names{"frames": "x"}); err == nil {
		t.Error("CheckNames accepts an unknown key")
	}
}

func TestACallIsLimitedAndUsesNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	for size, good := range map[int]bool{wire.MaxResponse: true, wire.MaxResponse + 1: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", size))
		}))
		t.Cleanup(server.Close)
		c := client(t, server.URL+"/")
		if c.Base != server.URL {
			t.Errorf("the base is %s", c.Base)
		}
		answer, err := c.Do(t.Context(), wire.Call{URL: c.Base + "/x"})
		if (err == nil) != good || good && len(answer.Body) != size {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestAnInvalidRequestIsRefused(t *testing.T) {
	t.Parallel()
	_, err := client(t, "https://x.example").Do(t.Context(), wire.Call{URL: "http://x.example/\x00" + secret})
	if e := backendstest.CheckError(t, err, secret); e == nil || e.Kind != backends.Refused {
		t.Errorf("got %v", err)
	}
}

func TestAFileIsReadableUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "video/mp4")
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	c := client(t, server.URL)
	file, content, err := c.Open(ctx, wire.Call{Operation: wire.Fetching, URL: c.Base})
	if err != nil || content != (backends.Content{Type: "video/mp4", Size: -1}) {
		t.Fatalf("%+v, %v", content, err)
	}
	defer file.Close()
	if _, err := io.ReadFull(file, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	cancel()
	ended := make(chan error, 1)
	go func() { _, err := io.ReadAll(file); ended <- err }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("reading the file ended without an error after its context was cancelled")
		}
	case <-time.After(time.Second):
		t.Error("reading the file continues after its context was cancelled")
	}
}

func TestSuccessWithoutAResultIsUnknown(t *testing.T) {
	t.Parallel()
	c := client(t, "https://x.example")
	for name, links := range map[string][]string{"no link": nil, "an empty link": {""}, "a link that is not http": {"file:///etc/passwd"}} {
		if got := c.Success("done", backends.VideoFile, links...); got.State != backends.Unknown || !strings.Contains(got.Word, "done") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got := c.Success("done", backends.ImageFile, "https://x.example/a.JPG?x", "x", "https://x.example/b", "https://x.example/c.d/e")
	want := []backends.Result{
		{URL: "https://x.example/a.JPG?x", Type: backends.ImageFile, Format: "jpeg"},
		{URL: "https://x.example/b", Type: backends.ImageFile},
		{URL: "https://x.example/c.d/e", Type: backends.ImageFile},
	}
	if got.State != backends.Succeeded || got.Progress != 100 || !slices.Equal(got.Results, want) {
		t.Errorf("%+v", got)
	}
}

func TestWebhookSecretsHaveAMinimumLength(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"whsec_aHVzaGh1c2hodXNoaHVzaA==": true, "aHVzaGh1c2hodXNoaHVzaA==": true,
		"": false, "whsec_": false, "whsec_aHVzaA==": false, "whsec_!": false,
	} {
		if err := wire.CheckSecret(settings.Secret(text)); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzWebhook checks that no notification with arbitrary headers is accepted.
func FuzzWebhook(f *testing.F) {
	f.Add("id", "1800000000", "v1,AAAA", "{}")
	f.Add("", "", "", "")
	f.Add("id", "-9223372036854775808", "v1,", "x")
	f.Fuzz(func(t *testing.T, id, stamp, signature, body string) {
		n := backends.Notification{
			Header: http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {signature}},
			Body:   []byte(body), Now: time.Unix(1_800_000_000, 0),
		}
		if wire.CheckWebhook(n, "whsec_aHVzaGh1c2hodXNoaHVzaA==") == nil {
			t.Error(fmt.Sprint("accepted: ", id, stamp, signature, body))
		}
	})
}
