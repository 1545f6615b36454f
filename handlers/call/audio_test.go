package call_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestRecordingsAreChargedBySecondsOrTokens(t *testing.T) {
	g, key := mediaCalls(t)
	tokens := `{"text":"hi","usage":{"type":"tokens","input_tokens":30,"input_token_details":{"audio_tokens":20,"text_tokens":10},"output_tokens":5,"total_tokens":35}}`
	for _, c := range []struct {
		path, model, file, more, mediaType, answer, basis, cost string
		seconds                                                 float64
	}{
		{transcriptions, "whisper-json", "mp3", "", "application/json", `{"text":"hi","usage":{"type":"duration","seconds":73}}`, "reported", "0.0073", 73},
		{transcriptions, "whisper-verbose", "mp3", "response_format=verbose_json", "application/json", `{"task":"transcribe","duration":8.47,"text":"hi","segments":[{"start":0,"text":"hi"}]}`, "reported", "0.0009", 9},
		{translations, "whisper-translated", "mp3", "response_format=verbose_json", "application/json", `{"duration":"8.47","text":"hi"}`, "reported", "0.0009", 9},
		{transcriptions, "whisper-wav", wav(20000), "response_format=srt", "text/plain", "1\n00:00:00,000 --> 00:00:02,000\nhi\n", "reported", "0.0003", 3},
		{translations, "whisper-data", wav(8000), "response_format=text", "text/plain", "data: is <what> it says", "reported", "0.0001", 1},
		{transcriptions, "whisper-guess", strings.Repeat("x", 37500), "", "application/json", `{"text":"hi"}`, "estimated", "0.001", 10},
		{transcriptions, "whisper-long", "x", "", "application/json", `{"text":"hi","usage":{"seconds":1e9}}`, "reported", "1.44", 14400},
		{transcriptions, "scribe", "mp3", "", "application/json", tokens, "reported", "0.000195", 0}, // 20×6 + 10×2.5 + 5×10
		{transcriptions, "flat-text", "mp3", "response_format=text", "text/plain", "hi", "reported", "0.25", 0},
	} {
		g.Backend.On(c.model, gatetest.Body(http.StatusOK, c.mediaType, c.answer))
		parts := []string{"model=" + c.model, "file@" + c.file, "timestamp_granularities[]=word", "chunking_strategy[type]=server_vad"}
		if c.more != "" {
			parts = append(parts, c.more)
		}
		form := formOf(parts...)
		got := sendForm(t, g, c.path, key.Secret, form)
		if seen := g.Backend.Seen(c.model); got.Status != http.StatusOK || got.Body != c.answer || len(seen) != 1 || string(seen[0].Body) != form {
			t.Fatalf("%s: %d, the caller got %s, the backend %.200v", c.model, got.Status, got.Body, seen)
		}
		line := wantMedia(t, g, got, strings.TrimPrefix(c.path, "/v1/audio/"), "complete", c.basis, c.cost)
		if line.Number("seconds") != c.seconds {
			t.Errorf("%s: the log line is %v", c.model, line)
		}
	}
	stream := "data: {\"type\":\"transcript.text.delta\",\"delta\":\"hi\"}\n\n" +
		"data: {\"type\":\"transcript.text.done\",\"text\":\"hi\",\"usage\":{\"input_tokens\":14,\"input_token_details\":{\"audio_tokens\":14},\"output_tokens\":45}}\n\n"
	g.Backend.On("scribe-stream", gatetest.Stream(cuts(stream, 5)...))
	got := sendForm(t, g, transcriptions, key.Secret, formOf("stream=true", "file@mp3", "model=scribe-stream"))
	if got.Body != stream {
		t.Errorf("the caller got %s", got.Body)
	}
	wantMedia(t, g, got, "transcriptions", "complete", "reported", "0.000534")

	for _, c := range []struct{ path, form, param, want string }{
		{transcriptions, formOf("model=whisper", "file@mp3", "response_format=srt"), "response_format", "allowed: json, verbose_json, diarized_json, or a WAV file"},
		{translations, formOf("model=whisper", "file@mp3"), "response_format", "allowed: verbose_json, or a WAV file"},
		{transcriptions, formOf("model=whisper", "file@mp3", "stream=true"), "stream", "allowed: false"},
		{transcriptions, formOf("model=scribe", "file@mp3", "response_format=text"), "response_format", "allowed: json"},
		{transcriptions, formOf("model=written", "file@mp3"), "model", "audio has no price"},
		{transcriptions, formOf("model=tts", "file@mp3"), "model", "no model"},
		{transcriptions, formOf("model=scribe", "file@mp3", "known_speaker_references[]=file-1"), "known_speaker_references", "names an object in the vendor's account"},
		{transcriptions, formOf("model=whisper", "file@mp3", "known_speaker_references[]=data:audio/wav;base64,AAAA", "known_speaker_references[]=gs://b/f"), "known_speaker_references", "names an object"},
	} {
		if got := sendForm(t, g, c.path, key.Secret, c.form); got.Status/100 != 4 || !strings.Contains(got.Body, `"param":"`+c.param+`"`) || !strings.Contains(got.Body, c.want) {
			t.Errorf("%d %s, want %s", got.Status, got.Body, c.want)
		}
	}
	g.Verify(t)
}

// TestStreamsOfAudioInAnotherDialectAreCharged has the streams of servers that answer with the dialect of
// OpenAI's other routes, such as vLLM.
func TestStreamsOfAudioInAnotherDialectAreCharged(t *testing.T) {
	g, key := mediaCalls(t)
	const (
		chunk = `data: {"object":"transcription.chunk","choices":[{"index":0,"delta":{"content":"hi"}}]}` + "\n\n"
		other = `data: {"kind":"part","said":"hi"}` + "\n\n"
		audio = `data: {"type":"audio.delta","delta":"QUJD"}` + "\n\n"
		done  = "data: [DONE]\n\n"
		fails = `data: {"error":{"message":"no"}}` + "\n\n"
	)
	recording, flat := formOf("stream=true", "file@"+wav(20000), "model=whisper-MODEL"), formOf("stream=true", "file@mp3", "model=flat-MODEL")
	spoken := `{"model":"tts-MODEL","input":"12345678","voice":"v","stream_format":"sse"}`
	for i, c := range []struct{ path, body, stream, ended, basis, cost string }{
		{transcriptions, recording, chunk + done, "complete", "reported", "0.0003"},
		{translations, recording, chunk + done, "complete", "reported", "0.0003"},
		{transcriptions, recording, other + done, "complete", "reported", "0.0003"},
		{transcriptions, recording, chunk, "upstream_error", "reported", "0.0003"},
		{transcriptions, recording, other, "upstream_error", "reported", "0.0003"},
		{transcriptions, recording, fails, "upstream_error", "none", "0.00"},
		{transcriptions, flat, chunk + done, "complete", "reported", "0.25"},
		{speech, spoken, audio + done, "complete", "reported", "0.00012"},
		{speech, spoken, audio, "upstream_error", "reported", "0.00012"},
	} {
		model := fmt.Sprint(i)
		for _, name := range []string{"whisper-", "flat-", "tts-"} {
			g.Backend.On(name+model, gatetest.Stream(c.stream))
		}
		body := strings.ReplaceAll(c.body, "MODEL", model)
		got := gatetest.Answer{}
		if c.path == speech {
			got = g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret), body)
		} else {
			got = sendForm(t, g, c.path, key.Secret, body)
		}
		wantMedia(t, g, got, strings.TrimPrefix(c.path, "/v1/audio/"), c.ended, c.basis, c.cost)
	}
	g.Verify(t)
}

// TestSamplesOfSpeakersAreInput has a user who can pay for the file alone, but not for samples that are long.
func TestSamplesOfSpeakersAreInput(t *testing.T) {
	g, _ := mediaCalls(t)
	poor := g.NewKey(t, nil)
	g.Credit(t, poor.UserID, "0.05")
	answer := `{"text":"hi","segments":[],"usage":{"type":"tokens","input_tokens":1,"output_tokens":1,"seconds":1}}`
	for _, c := range []struct {
		model, sample string
		status        int
	}{
		{"scribe", "data:audio/wav;base64," + strings.Repeat("A", 1600), http.StatusOK},
		{"scribe", "data:audio/wav;base64," + strings.Repeat("A", 160_000), http.StatusPaymentRequired}, // 10,000 tokens at 6
		{"scribe", "data:application/octet-stream;base64,AAAA", http.StatusPaymentRequired},             // the whole context
		{"scribe", "https://example.com/a.wav", http.StatusPaymentRequired},
		{"whisper", "data:audio/wav;base64," + strings.Repeat("A", 160_000), http.StatusOK},
	} {
		g.Backend.On(c.model, gatetest.JSON(http.StatusOK, answer))
		form := formOf("model="+c.model, "file@mp3", "response_format=diarized_json", "known_speaker_names[]=agent", "known_speaker_references[]="+c.sample)
		if got := sendForm(t, g, transcriptions, poor.Secret, form); got.Status != c.status {
			t.Errorf("%s with a sample %.30s: answered %d %s, want %d", c.model, c.sample, got.Status, got.Body, c.status)
		}
	}
	g.Verify(t)
}

func TestSpeechIsChargedByCharactersOrTokens(t *testing.T) {
	g, key := mediaCalls(t)
	for _, sound := range []string{"ID3\x04mp3", "<pcm that begins like a page", "data: pcm\n\n", " {pcm", "\xff\xfb"} {
		g.Backend.On("tts", gatetest.Body(http.StatusOK, "audio/mpeg", sound))
		got := respond(t, g, speech, key.Secret, `{"model":"tts","input":"Gr\u00fc\u00dfe \ud83d\ude00!","voice":"alloy","speed":1.25}`)
		if got.Body != sound {
			t.Errorf("the caller got %q", got.Body)
		}
		line := wantMedia(t, g, got, "speech", "complete", "reported", "0.00012") // 8 characters
		if line.Number("characters") != 8 || line["output"] != nil {
			t.Errorf("the log line is %v", line)
		}
	}
	stream := "data: {\"type\":\"speech.audio.delta\",\"audio\":\"QUJD\"}\n\n" +
		"data: {\"type\":\"speech.audio.done\",\"usage\":{\"input_tokens\":14,\"output_tokens\":101,\"total_tokens\":115}}\n\n"
	g.Backend.On("voice", gatetest.Stream(cuts(stream, 3)...))
	got := respond(t, g, speech, key.Secret, `{"model":"voice","input":"hi","voice":"alloy","stream_format":"sse"}`)
	if got.Body != stream {
		t.Errorf("the caller got %s", got.Body)
	}
	wantMedia(t, g, got, "speech", "complete", "reported", "0.0012204")

	g.Backend.On("tts-page", gatetest.Body(http.StatusOK, "text/html", "<html>"))
	wantMedia(t, g, respond(t, g, speech, key.Secret, `{"model":"tts-page","input":"hi","voice":"x"}`), "speech", "upstream_error", "none", "0.00")
	g.Backend.On("tts-error", gatetest.JSON(http.StatusOK, `{"error":{"message":"no"}}`))
	wantMedia(t, g, respond(t, g, speech, key.Secret, `{"model":"tts-error","input":"hi","voice":"x"}`), "speech", "complete", "none", "0.00")
	g.Backend.On("tts-cut", gatetest.Then(gatetest.Body(http.StatusOK, "audio/mpeg", "ID3"), gatetest.Reset))
	wantMedia(t, g, respond(t, g, speech, key.Secret, `{"model":"tts-none","input":"","voice":"x"}`), "speech", "complete", "reported", "0.00")

	for _, c := range []struct{ body, param, want string }{
		{`{"model":"voice","input":"hi","voice":"alloy"}`, "stream_format", "allowed: sse"},
		{`{"model":"tts","input":"hi","voice":{"id":"voice_1"}}`, "voice.id", "state shared"},
		{`{"model":"written","input":"hi","voice":"alloy"}`, "stream_format", "per character"},
		{`{"model":"written","input":"hi","voice":"alloy","stream_format":"sse"}`, "model", "audio has no price"},
		{`{"model":"whisper","input":"hi","voice":"alloy"}`, "model", "no model"},
		{`{"model":"tts","voice":"alloy"}`, "input", "required"},
		{`{"model":"tts","input":["hi"],"voice":"alloy"}`, "input", "string"},
	} {
		if got := respond(t, g, speech, key.Secret, c.body); got.Status/100 != 4 || !strings.Contains(got.Body, `"param":"`+c.param+`"`) || !strings.Contains(got.Body, c.want) {
			t.Errorf("%s: %d %s, want %s", c.body, got.Status, got.Body, c.want)
		}
	}
	g.Verify(t)
}
