package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

// mediaPrices are prices for which each call costs what its answer or its text shows.
const mediaPrices = `
	price gpt-image-* {
		image 0.04
	}
	price tts-* {
		per character 0.000015
	}
	price whisper-* {
		per minute 0.006
	}
	price gpt-4o-transcribe {
		input 2.50
		audio_input 6.00
		output 10.00
		context 16000
		max_output 2000
	}`

// demonstratedMedia is a site with these prices whose calls are answered by the demo handler.
var demonstratedMedia = site{Money: mediaPrices, Messages: demonstration.Messages, Completions: demonstration.Completions}

// TestTheOpenAISDKMakesImages uses the parameters of the SDK's own tests.
func TestTheOpenAISDKMakesImages(t *testing.T) {
	t.Parallel()
	g := running(t, demonstratedMedia)
	g.post("/modelgate/wallets/ada/credit", map[string]any{"amount": "10.00", "reason": "test"}, nil)
	client := g.openaiClient()
	isPNG := func(text string) bool {
		data, err := base64.StdEncoding.DecodeString(text)
		return err == nil && bytes.HasPrefix(data, []byte("\x89PNG"))
	}

	images, err := client.Images.Generate(t.Context(), openai.ImageGenerateParams{
		Prompt: "A cute baby sea otter", Model: "gpt-image-2", N: openai.Int(2), Background: openai.ImageGenerateParamsBackgroundTransparent,
		Moderation: openai.ImageGenerateParamsModerationLow, OutputFormat: openai.ImageGenerateParamsOutputFormatPNG,
		Quality: openai.ImageGenerateParamsQualityMedium, Size: openai.ImageGenerateParamsSize1024x1024, User: openai.String("user-1234"),
	})
	if err != nil || len(images.Data) != 2 || !isPNG(images.Data[0].B64JSON) {
		t.Fatalf("the images are %v, %v", images, err)
	}
	stream := client.Images.GenerateStreaming(t.Context(), openai.ImageGenerateParams{
		Prompt: "A cute baby sea otter", Model: "gpt-image-2", PartialImages: openai.Int(2),
	})
	defer stream.Close()
	kinds := ""
	for stream.Next() {
		if event := stream.Current(); isPNG(event.B64JSON) {
			kinds += event.Type + " "
		}
	}
	if want := strings.Repeat("image_generation.partial_image ", 2) + "image_generation.completed "; stream.Err() != nil || kinds != want {
		t.Errorf("the events are %q, %v", kinds, stream.Err())
	}
	edited, err := client.Images.Edit(t.Context(), openai.ImageEditParams{
		Image:  openai.ImageEditParamsImageUnion{OfFileArray: []io.Reader{strings.NewReader("Example data"), strings.NewReader("more")}},
		Prompt: "A cute baby sea otter wearing a beret", Mask: strings.NewReader("Example data"), Model: "gpt-image-2", N: openai.Int(1),
	})
	if err != nil || len(edited.Data) != 1 || !isPNG(edited.Data[0].B64JSON) {
		t.Errorf("the edited image is %v, %v", edited, err)
	}
	if w := g.walletAtRest("ada"); w.Balance.String() != "9.840000000" { // two, one and one image
		t.Errorf("the balance is %v", w.Balance)
	}
}

func TestTheOpenAISDKSpeaksAndListens(t *testing.T) {
	t.Parallel()
	g := running(t, demonstratedMedia)
	g.post("/modelgate/wallets/ada/credit", map[string]any{"amount": "10.00", "reason": "test"}, nil)
	client := g.openaiClient()
	spoken, err := client.Audio.Speech.New(t.Context(), openai.AudioSpeechNewParams{
		Input: "Today is a wonderful day.", Model: "tts-1", ResponseFormat: openai.AudioSpeechNewParamsResponseFormatWAV,
		Voice: openai.AudioSpeechNewParamsVoiceUnion{OfAudioSpeechNewsVoiceString2: openai.String("alloy")}, Speed: openai.Float(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer spoken.Body.Close()
	sound, err := io.ReadAll(spoken.Body)
	if err != nil || !bytes.HasPrefix(sound, []byte("RIFF")) {
		t.Fatalf("the speech has %d bytes, %v", len(sound), err)
	}
	for _, model := range []string{"whisper-1", "gpt-4o-transcribe"} {
		text, err := client.Audio.Transcriptions.New(t.Context(), openai.AudioTranscriptionNewParams{
			File: openai.File(bytes.NewReader(sound), "speech.wav", "audio/wav"), Model: model, Language: openai.String("en"),
			Prompt: openai.String("Today is a wonderful day."), Temperature: openai.Float(0), TimestampGranularities: []string{"word"},
		})
		if err != nil || text.Text != "Today is a wonderful day." {
			t.Errorf("%s: the text is %v, %v", model, text, err)
		}
	}
	stream := client.Audio.Transcriptions.NewStreaming(t.Context(), openai.AudioTranscriptionNewParams{
		File: openai.File(bytes.NewReader(sound), "speech.wav", "audio/wav"), Model: "gpt-4o-transcribe", Prompt: openai.String("Today is a wonderful day."),
	})
	defer stream.Close()
	text := ""
	for stream.Next() {
		text += stream.Current().Delta
	}
	if stream.Err() != nil || text != "Today is a wonderful day." {
		t.Errorf("the stream is %q, %v", text, stream.Err())
	}
	translated, err := client.Audio.Translations.New(t.Context(), openai.AudioTranslationNewParams{
		File: openai.File(bytes.NewReader(sound), "speech.wav", "audio/wav"), Model: "whisper-1", Prompt: openai.String("hello"),
	})
	if err != nil || translated.Text != "hello" {
		t.Errorf("the translation is %v, %v", translated, err)
	}
}

// mediaCalls is the number of random calls of images and audio.
const mediaCalls = 300

// TestMediaCallsThatBreakOffAreChargedByWhatCame makes random calls of images and audio, of which most
// break off, and compares the ledger with the log and with what the backend has sent.
func TestMediaCallsThatBreakOffAreChargedByWhatCame(t *testing.T) {
	t.Parallel()
	type plan struct {
		path, body, mediaType string
		parts                 []string // of the answer
		stop                  int      // parts that are sent
		cost                  nano     // if a part is sent
	}
	plans := make(map[string]*plan)
	random := newCallGenerator(t)
	b := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
		p := plans[a.Header.Get(scriptHeader)]
		if p.stop == 0 {
			panic(http.ErrAbortHandler)
		}
		s.writeHeader(http.StatusOK, "Content-Type", p.mediaType, "Content-Length", fmt.Sprint(len(strings.Join(p.parts, ""))))
		for _, part := range p.parts[:p.stop] {
			s.write(part)
		}
		if p.stop < len(p.parts) {
			panic(http.ErrAbortHandler)
		}
	})
	config := forwarding(b)
	config.Money = mediaPrices
	config.Log = "INFO"
	g := running(t, config, b)
	g.post("/modelgate/wallets/ada/credit", map[string]any{"amount": "1000.00", "reason": "test"}, nil)
	due := nano(0)
	for n := range mediaCalls {
		p := &plan{mediaType: "text/event-stream"}
		switch random.IntN(3) {
		case 0: // images as a stream, of which each costs 0.04
			images := 1 + random.IntN(3)
			p.path, p.body = "/v1/images/generations", fmt.Sprintf(`{"model":"gpt-image-2","prompt":"x","stream":true,"n":%d,"partial_images":1}`, images)
			for range images {
				for _, kind := range []string{"partial_image", "completed"} {
					p.parts = append(p.parts, event("image_generation."+kind, fmt.Sprintf(`{"type":"image_generation.%s","b64_json":"QUJD"}`, kind)))
				}
			}
			p.stop = random.IntN(len(p.parts) + 1)
			p.cost = nano(max(p.stop/2, min(p.stop, 1))) * 40_000_000
		case 1: // speech: all characters count as soon as a byte came
			text := random.text(40)
			p.path, p.body, p.mediaType = "/v1/audio/speech", fmt.Sprintf(`{"model":"tts-1","voice":"alloy","input":%s}`, quoted(text)), "audio/mpeg"
			p.parts = []string{"ID3", "sound", "more"}
			p.stop = random.IntN(4)
			p.cost = nano(len([]rune(text))) * 15_000
		default: // a recording as WAV, whose length is known
			seconds := 1 + random.IntN(5)
			p.path, p.mediaType = "/v1/audio/transcriptions", "text/plain"
			sound := "RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x64\x00\x00\x00\x64\x00\x00\x00\x01\x00\x08\x00data" +
				string([]byte{byte(seconds * 100), byte(seconds * 100 >> 8), 0, 0}) + strings.Repeat("\x80", seconds*100)
			p.body = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--b\r\nContent-Disposition: form-data; name=\"response_format\"\r\n\r\ntext\r\n" +
				"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n" + sound + "\r\n--b--\r\n"
			p.parts = []string{"what ", "it ", "says"}
			p.stop = random.IntN(4)
			p.cost = nano(seconds) * 100_000
		}
		if p.stop > 0 {
			due += p.cost
		}
		plans[fmt.Sprint(n)] = p
	}
	inParallel(16, mediaCalls, func(n int) {
		p := plans[fmt.Sprint(n)]
		contentType := "application/json"
		if strings.HasPrefix(p.body, "--b") {
			contentType = "multipart/form-data; boundary=b"
		}
		req := g.request(context.Background(), p.path, p.body, "Authorization", "Bearer "+g.Key, scriptHeader, fmt.Sprint(n))
		req.Header.Set("Content-Type", contentType)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Errorf("call %d: %v", n, err)
			return
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := strings.Join(p.parts, ""); p.stop == len(p.parts) && (err != nil || string(got) != want) {
			t.Errorf("call %d of %s got %d %q, %v", n, p.path, resp.StatusCode, got, err)
		}
	})
	g.awaitCalls("ada", mediaCalls)
	w := g.walletAtRest("ada")
	if spent := nano(1_000_000_000_000) - w.Balance; spent != due || total(g.report("ada")).Cost != due {
		t.Errorf("the wallet paid %v, the report has %v, the backend's answers cost %v", spent, total(g.report("ada")).Cost, due)
	}
	logged := nano(0)
	for _, line := range g.process.callLines(mediaCalls) {
		logged += line.Cost
	}
	if logged != due {
		t.Errorf("the log has %v, the backend's answers cost %v", logged, due)
	}
	for _, a := range b.requests() {
		if p := plans[a.Header.Get(scriptHeader)]; string(a.Body) != p.body {
			t.Errorf("the backend got %q for %q", a.Body, p.body)
		}
	}
	g.verify()
}
