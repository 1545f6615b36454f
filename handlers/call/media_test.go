package call_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

const (
	images         = "/v1/images/generations"
	edits          = "/v1/images/edits"
	speech         = "/v1/audio/speech"
	transcriptions = "/v1/audio/transcriptions"
	translations   = "/v1/audio/translations"
)

const unitPrices = `
	price paint* {
		image 0.04
		image hd 0.08
		image 1024x1792 0.06
		image 1024x1792/hd 0.12
	}
	price sized* {
		image 512x512 0.018
		image 1024x1024 0.02
	}
	price draw* {
		input 5
		image_input 8
		output 10
		image_output 30
		context 100000
		max_output 7000
	}
	price whisper* {
		per minute 0.006
	}
	price scribe* {
		input 2.5
		audio_input 6
		output 10
		context 16000
		max_output 2000
	}
	price tts* {
		per character 0.000015
	}
	price voice* {
		input 0.6
		output 0
		audio_output 12
		context 2000
		max_output 4000
	}
	price flat* {
		request 0.25
	}
	price written* {
		input 1
		output 1
		context 1000
		max_output 1000
	}
`

// mediaCalls starts a gateway with these prices and a user who has a large balance.
func mediaCalls(t *testing.T) (*gatetest.Gate, gatetest.Key) {
	t.Helper()
	g := gatetest.Start(t, gatetest.Config{App: unitPrices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1000.00")
	return g, key
}

const boundary = "----formdata-undici-012345678901"

// formOf returns a form with these fields (name=value), and with files (name@data).
func formOf(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		at := strings.IndexAny(part, "=@")
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=%q", boundary, part[:at])
		if part[at] == '@' {
			b.WriteString("; filename=\"a.bin\"\r\nContent-Type: application/octet-stream")
		}
		fmt.Fprintf(&b, "\r\n\r\n%s\r\n", part[at+1:])
	}
	return b.String() + "--" + boundary + "--\r\n"
}

// sendForm makes a call with a form.
func sendForm(t *testing.T, g *gatetest.Gate, path, key, form string) gatetest.Answer {
	t.Helper()
	return g.Do(t, http.MethodPost, path, "Content-Type: multipart/form-data; boundary="+boundary+"\nAuthorization: Bearer "+key+"\n", form)
}

// wav returns a WAV file of this length with one channel of 8 bits at 8 kHz.
func wav(samples int) string {
	data := append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"), binary.LittleEndian.AppendUint32(nil, 8000)...)
	data = append(data, "\x40\x1f\x00\x00\x01\x00\x08\x00data"...)
	data = binary.LittleEndian.AppendUint32(data, uint32(samples))
	return string(data) + strings.Repeat("\x80", samples)
}

// wantMedia checks the log line of a call.
func wantMedia(t *testing.T, g *gatetest.Gate, got gatetest.Answer, route, ended, basis, cost string) gatetest.Line {
	t.Helper()
	line := g.CallLine(t, got.RequestID())
	if line.Text("route") != route || line.Text("ended") != ended || line.Text("usage") != basis || line.Text("cost") != cost {
		t.Errorf("want %s, %s, %s, %s: the log line is %v", route, ended, basis, cost, line)
	}
	return line
}

func TestImagesAreChargedByTheImageOrByTheToken(t *testing.T) {
	g, key := mediaCalls(t)
	picture := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("png", 5000)))
	two := `{"created":1,"data":[{"b64_json":"` + picture + `","url":"https://x/1"},{"url":"https:\/\/x/2","b64_json":null}]}`
	usage := `"usage":{"input_tokens":50,"input_tokens_details":{"text_tokens":10,"image_tokens":40},"output_tokens":4160,"total_tokens":4210}`
	for _, c := range []struct {
		model, more, answer, cost string
		images                    float64
	}{
		{"paint-default", `,"n":2`, two, "0.08", 2},
		{"paint-hd", `,"n":2,"quality":"HD"`, two, "0.16", 2},
		{"paint-large", `,"n":2,"size":"1024x1792"`, two, "0.12", 2},
		{"paint-both", `,"n":2,"size":"1024x1792","quality":"hd"`, two, "0.24", 2},
		{"paint-auto", `,"size":"auto","quality":"auto"`, `{"data":[{"url":"u"}],"size":"1024x1792","quality":"low"}`, "0.06", 1},
		{"paint-unknown", `,"size":"auto"`, `{"data":[{"url":"u"}]}`, "0.06", 1},
		{"paint-fewer", `,"n":3`, `{"data":[{"url":"u"}]}`, "0.04", 1},
		{"paint-more", `,"n":1`, two, "0.04", 1},
		{"paint-none", `,"n":3`, `{"data":[]}`, "0.00", 0},
		{"paint-escaped", `,"n":2`, `{"data":[{"b64_json":"\/9j\/4AA"},{"url":"\u0068ttps:\/\/x\/2"}]}`, "0.08", 2},
		{"paint-other", `,"n":3`, `{"artifacts":[{"base64":"x"}]}`, "0.12", 3},
		{"sized-default", ``, `{"data":[{"url":"u"}]}`, "0.02", 1},
		{"flat", `,"n":3`, two, "0.25", 0},
		{"draw", `,"n":2`, `{"data":[{"b64_json":"x"},{"b64_json":"y"}],` + usage + `}`, "0.12517", 0}, // 10×5 + 40×8 + 4160×30, and 0.25 less
	} {
		g.Backend.On(c.model, gatetest.JSON(http.StatusOK, c.answer))
		body := `{"model":"` + c.model + `", "prompt":"a caf\u00e9"` + c.more + `}`
		got := respond(t, g, images, key.Secret, body)
		if seen := g.Backend.Seen(c.model); got.Status != http.StatusOK || got.Body != c.answer || len(seen) != 1 || string(seen[0].Body) != body {
			t.Fatalf("%s: %d, the caller got %.100s, the backend %v", c.model, got.Status, got.Body, seen)
		}
		basis := "reported"
		if c.model == "paint-other" {
			basis = "estimated"
		}
		line := wantMedia(t, g, got, "images", "complete", basis, c.cost)
		if line.Number("images") != c.images {
			t.Errorf("%s: the log line is %v", c.model, line)
		}
	}
	g.Verify(t)
}

func TestAStreamOfImagesIsForwardedAndCharged(t *testing.T) {
	g, key := mediaCalls(t)
	event := func(kind, more string) string {
		return fmt.Sprintf("event: %s\ndata: {\"type\":%q,\"b64_json\":%q%s}\n\n", kind, kind, strings.Repeat("QUJD", 9000), more)
	}
	partial := event("image_generation.partial_image", `,"partial_image_index":0`)
	last := event("image_generation.completed", `,"size":"1024x1024","quality":"high","usage":{"input_tokens":10,"output_tokens":1000,"total_tokens":1010}`)
	g.Backend.On("draw", gatetest.Stream(cuts(partial+partial+last, 7000)...))
	body := `{"model":"draw","prompt":"x","stream":true,"partial_images":2}`
	got := respond(t, g, images, key.Secret, body)
	if got.Body != partial+partial+last {
		t.Errorf("the caller got %d bytes", len(got.Body))
	}
	wantMedia(t, g, got, "images", "complete", "reported", "0.03005")

	// The reports of several images, each of which counts its own image or all before it, too.
	one := func(input, output int) string {
		return event("image_generation.completed", fmt.Sprintf(`,"usage":{"input_tokens":%d,"output_tokens":%d}`, input, output))
	}
	for name, c := range map[string]struct{ events, cost string }{
		"each":      {one(10, 1000) + one(10, 1000) + one(10, 1100), "0.09315"}, // 30×5 + 3100×30
		"different": {one(10, 1000) + one(10, 200) + one(10, 1300), "0.07515"},
		"all":       {one(10, 1000) + one(20, 2000) + one(30, 3000), "0.09015"},
		"all-once":  {event("image_generation.completed", "") + event("image_generation.completed", "") + one(30, 3000), "0.09015"},
		"partial":   {event("image_generation.partial_image", `,"usage":{"input_tokens":10,"output_tokens":900}`) + one(10, 1000) + one(10, 1000) + one(10, 1000), "0.09015"},
	} {
		model := "draw-" + name
		g.Backend.On(model, gatetest.Stream(cuts(c.events, 9000)...))
		got := respond(t, g, images, key.Secret, `{"model":"`+model+`","prompt":"x","stream":true,"n":3}`)
		wantMedia(t, g, got, "images", "complete", "reported", c.cost)
	}

	g.Backend.On("paint", gatetest.Stream(partial, last))
	wantMedia(t, g, respond(t, g, images, key.Secret, strings.Replace(body, "draw", "paint", 1)), "images", "complete", "reported", "0.04")

	g.Backend.On("paint-cut", gatetest.Then(gatetest.Stream(partial, partial), gatetest.Reset))
	got = respond(t, g, images, key.Secret, strings.Replace(body, "draw", "paint-cut", 1))
	if !strings.HasPrefix(got.Body, partial+partial+`data: {"error":`) {
		t.Errorf("the caller got %.200s", got.Body[2*len(partial):])
	}
	wantMedia(t, g, got, "images", "upstream_error", "reported", "0.04")

	g.Backend.On("draw-cut", gatetest.Then(gatetest.Stream(partial), gatetest.Reset))
	wantMedia(t, g, respond(t, g, images, key.Secret, strings.Replace(body, "draw", "draw-cut", 1)), "images", "upstream_error", "estimated", "0.150005") // one image of 5,000 tokens

	g.Backend.On("paint-failed", gatetest.Stream("event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"no\"}}\n\n"))
	wantMedia(t, g, respond(t, g, images, key.Secret, strings.Replace(body, "draw", "paint-failed", 1)), "images", "upstream_error", "none", "0.00")

	whole := event("image_generation.completed", "")
	g.Backend.On("paint-half", gatetest.Stream(whole)) // of two images
	two := strings.Replace(body, `"draw"`, `"paint-half","n":2`, 1)
	wantMedia(t, g, respond(t, g, images, key.Secret, two), "images", "complete", "reported", "0.04")
	g.Backend.On("paint-broken", gatetest.Stream(whole, "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"no\"}}\n\n"))
	wantMedia(t, g, respond(t, g, images, key.Secret, strings.Replace(two, "paint-half", "paint-broken", 1)), "images", "upstream_error", "reported", "0.04")
	g.Verify(t)
}

func TestEditsTakeAFormOrJSON(t *testing.T) {
	g, key := mediaCalls(t)
	answer := `{"data":[{"b64_json":"x"}],"usage":{"input_tokens":410,"input_tokens_details":{"text_tokens":10,"image_tokens":400},"output_tokens":100}}`
	g.Backend.On("draw-form", gatetest.JSON(http.StatusOK, answer))
	form := formOf("model=draw-form", "image[]@\x89PNG\r\n\x1a\n"+strings.Repeat("\r\n--\x00", 100), "image[]@second", "mask@m", "prompt=ein Café", "n=1", "size=auto")
	got := sendForm(t, g, edits, key.Secret, form)
	seen := g.Backend.Seen("draw-form")
	if got.Status != http.StatusOK || got.Body != answer || len(seen) != 1 || string(seen[0].Body) != form ||
		seen[0].Header.Get("Content-Type") != "multipart/form-data; boundary="+boundary {
		t.Fatalf("%d: the caller got %s, the backend %q", got.Status, got.Body, seen)
	}
	wantMedia(t, g, got, "image_edits", "complete", "reported", "0.00625") // 10×5 + 400×8 + 100×30

	g.Backend.On("draw-json", gatetest.JSON(http.StatusOK, answer))
	body := `{"model":"draw-json","prompt":"x","images":[{"image_url":"data:image/png;base64,AAAA"}]}`
	wantMedia(t, g, respond(t, g, edits, key.Secret, body), "image_edits", "complete", "reported", "0.00625")

	for body, param := range map[string]string{
		`{"model":"draw","prompt":"x","images":[{"file_id":"file-1"}]}`:          "images[0].file_id",
		`{"model":"draw","prompt":"x","mask":{"file_id":"file-1"}}`:              "mask.file_id",
		`{"model":"draw","prompt":"x","images":[{"image_url":"file:///etc/x"}]}`: "images[0].image_url",
	} {
		if got := respond(t, g, edits, key.Secret, body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, `"param":"`+param+`"`) {
			t.Errorf("%s: %d %s", body, got.Status, got.Body)
		}
	}
	g.Verify(t)
}

// TestMultipartFormsAreStrict has forms that parsers read differently, and members that are checked as
// those of JSON are.
func TestMultipartFormsAreStrict(t *testing.T) {
	g, key := mediaCalls(t)
	good := formOf("model=whisper", "file@sound", "response_format=json")
	part := func(head string) string {
		return strings.Replace(good, "Content-Disposition: form-data; name=\"model\"", head, 1)
	}
	for name, c := range map[string]struct{ form, want string }{
		"two models":            {formOf("model=whisper", "model=flat", "file@s"), `"param":"model"`},
		"a model in capitals":   {formOf("model=whisper", "Model=flat", "file@s"), `exactly this spelling`},
		"no model":              {formOf("file@s"), `"param":"model"`},
		"no file":               {formOf("model=whisper"), `"param":"file"`},
		"a model as a file":     {formOf("model@whisper", "file@s"), `not a file here; allowed: file`},
		"a file as text":        {formOf("model=whisper", "file=file-123"), "`file` must be a file"},
		"two files":             {formOf("model=whisper", "file@s", "file@t"), `too many files; allowed: 1`},
		"a number as a boolean": {formOf("model=whisper", "file@s", "stream=1"), `"param":"stream"`},
		"an unknown member":     {formOf("model=whisper", "file@s", "engine=x"), `"param":"engine"`},
		"a stored file":         {formOf("model=whisper", "file@s", "file_id=file-1"), `"param":"file_id"`},
		"the model in brackets": {formOf("model[]=whisper", "file@s"), `"param":"model"`},
		"deep brackets":         {formOf("model=whisper", "a[b][c]=1", "file@s"), `"param":"a[b][c]"`},
		"not UTF-8":             {formOf("model=whisper\xff", "file@s"), `"param":"model"`},
		"a space in the model":  {formOf("model= whisper", "file@s"), `"param":"model"`},

		"line feeds":             {strings.ReplaceAll(good, "\r\n", "\n"), "the form cannot be read"},
		"a boundary in the data": {formOf("model=whisper", "file@a\n--"+boundary+"\r\n"), "the form cannot be read"},
		"a prefix of one":        {formOf("model=whisper", "file@a\r\n--"+boundary+"x"), "the form cannot be read"},
		"a preamble":             {"x\r\n" + good, "does not begin with the boundary"},
		"an epilogue":            {good + good, "after its last boundary"},
		"cut":                    {good[:len(good)-20], "the form cannot be read"},
		"empty":                  {"", "does not begin with the boundary"},
		"two names":              {part(`Content-Disposition: form-data; name="model"; name="x"`), "cannot be read"},
		"an escaped name":        {part(`Content-Disposition: form-data; name="mod\"el"`), "backslash"},
		"an encoded name":        {part(`Content-Disposition: form-data; name*=utf-8''model`), "name*"},
		"two dispositions":       {part("Content-Disposition: form-data; name=\"model\"\r\nContent-Disposition: form-data; name=\"x\""), "given twice"},
		"a folded header":        {part("Content-Disposition: form-data;\r\n name=\"model\""), "not a header"},
		"quoted-printable":       {part("Content-Transfer-Encoding: quoted-printable\r\nContent-Disposition: form-data; name=\"model\""), "Content-Transfer-Encoding"},
		"another charset":        {part("Content-Type: text/plain; charset=utf-16\r\nContent-Disposition: form-data; name=\"model\""), "charset"},
		"parts in a part":        {part("Content-Type: multipart/mixed; boundary=x\r\nContent-Disposition: form-data; name=\"model\""), "parts"},
		"another disposition":    {part(`Content-Disposition: attachment; name="model"`), "form-data"},
		"many parts":             {formOf(strings.Split(strings.Repeat("model=x,", 200)+"file@s", ",")...), "more than 128 parts"},
		"long fields":            {formOf("model=whisper", "prompt="+strings.Repeat("x", 300<<10), "file@s"), "256 KiB"},
	} {
		got := sendForm(t, g, transcriptions, key.Secret, c.form)
		if got.Status != http.StatusBadRequest && got.Status != http.StatusRequestEntityTooLarge || !strings.Contains(got.Body, c.want) {
			t.Errorf("%s: %d %s, want %s", name, got.Status, got.Body, c.want)
		}
	}
	for _, contentType := range []string{"application/json", "multipart/form-data", "multipart/form-data; boundary=\"a b\"", "application/x-www-form-urlencoded"} {
		got := g.Do(t, http.MethodPost, transcriptions, "Content-Type: "+contentType+"\nAuthorization: Bearer "+key.Secret+"\n", good)
		if got.Status != http.StatusUnsupportedMediaType && got.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", contentType, got.Status, got.Body)
		}
	}
	if n := g.Backend.Total(); n != 0 {
		t.Errorf("the backend got %d calls", n)
	}
	if got := sendForm(t, g, transcriptions, key.Secret, good); got.Status != http.StatusOK {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	g.Verify(t)
}

func TestWhatImagesReserve(t *testing.T) {
	g, key := mediaCalls(t)
	poor := g.NewKey(t, nil)
	g.Credit(t, poor.UserID, "0.10")
	for _, c := range []struct {
		body   string
		status int
	}{
		{`{"model":"paint","prompt":"x"}`, 402}, // the most expensive row
		{`{"model":"paint","prompt":"x","quality":"hd","size":"1x1"}`, 200},
		{`{"model":"paint","prompt":"x","quality":"hd","size":"1x1","n":2}`, 402},
		{`{"model":"sized","prompt":"x","n":5}`, 402}, // 0.02 is left
		{`{"model":"draw","prompt":"x"}`, 402},
		{`{"model":"sized","prompt":"x","n":1}`, 200},
	} {
		g.Backend.On("paint", gatetest.JSON(http.StatusOK, `{"data":[{"url":"u"}]}`))
		g.Backend.On("sized", gatetest.JSON(http.StatusOK, `{"data":[{"url":"u"}]}`))
		if got := respond(t, g, images, poor.Secret, c.body); got.Status != c.status {
			t.Errorf("%s: %d %s", c.body, got.Status, got.Body)
		}
	}
	for _, c := range []struct {
		body   string
		status int
	}{
		{`{"model":"paint","prompt":"x","n":9000000000000000000}`, 400},
		{`{"model":"paint","prompt":"x","n":0}`, 400},
		{`{"model":"paint","prompt":"x","n":-1}`, 400},
		{`{"model":"paint","prompt":"x","n":1.5}`, 400},
		{`{"model":"paint","prompt":"x","n":2,"n":1}`, 400},
		{`{"model":"paint","prompt":"x","num_images":4}`, 400},
		{`{"model":"sized","prompt":"x","size":"2048x2048"}`, 400},
		{`{"model":"whisper","prompt":"x"}`, 404},
		{`{"model":"written","prompt":"x"}`, 400},
	} {
		if got := respond(t, g, images, key.Secret, c.body); got.Status != c.status {
			t.Errorf("%s: %d %s", c.body, got.Status, got.Body)
		}
	}
	if got := respond(t, g, "/v1/chat/completions", key.Secret, `{"model":"paint","messages":[{"role":"user","content":"x"}]}`); got.Status != http.StatusNotFound {
		t.Errorf("a model with a price of images only: %d %s", got.Status, got.Body)
	}
	g.Verify(t)
}
