package demo

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// transcribe sends a recording that is no WAV, of two seconds, with these fields.
func transcribe(t *testing.T, endpoint string, fields ...string) string {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreateFormFile("file", "speech.mp3")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(make([]byte, 2*bytesPerSecond)) // a bytes.Buffer returns no error
	for _, field := range append(fields, "model=m", "prompt=one two") {
		name, value, _ := strings.Cut(field, "=")
		if err := w.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	r := httptest.NewRequest(http.MethodPost, "/v1/audio/"+endpoint, &body)
	r.Header.Set("Content-Type", w.FormDataContentType())
	got := serve(unpaced, r)
	if got.Code != http.StatusOK {
		t.Fatalf("%q: %d %s", fields, got.Code, got.Body)
	}
	return got.Body.String()
}

func TestTranscriptsHaveTheFormatsOfTheVendor(t *testing.T) {
	t.Parallel()
	const (
		segment = `"segments":[{"id":0,"seek":0,"start":0,"end":2,"text":"one two","tokens":[1,2],"temperature":0,"avg_logprob":-0.1,"compression_ratio":1,"no_speech_prob":0.01}],`
		words   = `"words":[{"word":"one","start":0,"end":1},{"word":"two","start":1,"end":2}],`
		usage   = `"usage":{"type":"duration","seconds":2}}`
		verbose = `"language":"english","duration":2,"text":"one two",`
		speech  = `{"type":"transcript.text.segment","id":"seg_0","start":0,"end":2,"speaker":"A","text":"one two"}`
		deltas  = `data: {"type":"transcript.text.delta","delta":"one"}` + "\n\n" + `data: {"type":"transcript.text.delta","delta":" two"}` + "\n\n"
		done    = `data: {"type":"transcript.text.done","text":"one two",` + usage + "\n\n"
	)
	for _, c := range []struct {
		endpoint, fields, want string
	}{
		{"transcriptions", "", `{"text":"one two",` + usage},
		{"translations", "", `{"text":"one two",` + usage},
		{"transcriptions", "response_format=verbose_json", `{"task":"transcribe",` + verbose + segment + usage},
		{"translations", "response_format=verbose_json", `{"task":"translate",` + verbose + segment + usage},
		{"transcriptions", "response_format=verbose_json timestamp_granularities[]=word", `{"task":"transcribe",` + verbose + words + usage},
		{"transcriptions", "response_format=verbose_json timestamp_granularities[]=word timestamp_granularities[]=segment", `{"task":"transcribe",` + verbose + segment + words + usage},
		{"transcriptions", "response_format=diarized_json", `{"task":"transcribe","duration":2,"text":"one two","segments":[` + speech + `],` + usage},
		{"transcriptions", "stream=true", deltas + done},
		{"transcriptions", "stream=true response_format=diarized_json", deltas + "data: " + speech + "\n\n" + done},
	} {
		if got := transcribe(t, c.endpoint, strings.Fields(c.fields)...); got != c.want {
			t.Errorf("%s %s: %s", c.endpoint, c.fields, got)
		}
	}
}
