package e2e

import (
	"bytes"
	"encoding/base64"
	"io"
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
	detailed, err := client.Audio.Transcriptions.New(t.Context(), openai.AudioTranscriptionNewParams{
		File: openai.File(bytes.NewReader(sound), "speech.wav", "audio/wav"), Model: "whisper-1", Prompt: openai.String("Today is a wonderful day."),
		ResponseFormat: openai.AudioResponseFormatVerboseJSON, TimestampGranularities: []string{"word", "segment"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if v := detailed.AsTranscriptionVerbose(); len(v.Words) != 5 || v.Words[4].End != v.Duration || len(v.Segments) != 1 || len(v.Segments[0].Tokens) == 0 || v.Segments[0].AvgLogprob == 0 {
		t.Errorf("with timestamps it is %s", detailed.RawJSON())
	}
	translated, err := client.Audio.Translations.New(t.Context(), openai.AudioTranslationNewParams{
		File: openai.File(bytes.NewReader(sound), "speech.wav", "audio/wav"), Model: "whisper-1", Prompt: openai.String("hello"),
	})
	if err != nil || translated.Text != "hello" {
		t.Errorf("the translation is %v, %v", translated, err)
	}
}
