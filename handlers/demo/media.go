package demo

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"slices"
	"strings"
	"time"
)

// This file has the endpoints of images and audio. Their pictures and sounds are tiny.

const (
	imageTokens      = 272 // of an image, in both directions
	partialTokens    = 100 // of a partial image
	maxImages        = 10
	secondsOfFile    = 4000 // bytes of a recording that is not WAV, for one second
	samplesPerSecond = 24000
	charactersPerSec = 15
)

// readForm returns the fields of a form as the JSON of the same members, and its files.
func readForm(contentType string, body []byte) (fields []byte, files map[string][]byte, err error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, nil, err
	}
	values, files := make(map[string]any), make(map[string][]byte)
	for reader := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		part, err := reader.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, nil, err
		}
		name, _, _ := strings.Cut(part.FormName(), "[")
		switch text := string(data); {
		case part.FileName() != "":
			files[fmt.Sprintf("%s %d", name, len(files))] = data
		case slices.Contains([]string{"n", "partial_images", "stream"}, name):
			values[name] = json.RawMessage(text)
		default:
			values[name] = text
		}
	}
	fields, err = json.Marshal(values)
	return fields, files, err
}

// isForm reports whether a Content-Type is that of a form.
func isForm(contentType string) bool { return strings.HasPrefix(contentType, "multipart/form-data") }

// format returns response_format, which is a string on the endpoints of images and audio.
func (q *request) format() (name string) {
	_ = json.Unmarshal(q.ResponseFormat, &name)
	return name
}

// answerImages answers /v1/images/generations, and answerEdits /v1/images/edits. The colours of a picture
// depend on its prompt.
func answerImages(q *request, r simulation) (*answer, error) {
	return q.pictures(r, "image_generation")
}

func answerEdits(q *request, r simulation) (*answer, error) {
	if len(q.files)+len(q.Images) == 0 {
		return nil, missing("image")
	}
	return q.pictures(r, "image_edit")
}

func (q *request) pictures(r simulation, event string) (*answer, error) {
	n := cmp.Or(orZero(q.N), 1)
	if n < 1 || n > maxImages {
		return nil, invalid("n", "n: must be from 1 to %d.", maxImages)
	}
	size, quality := q.Size, q.Quality
	if size == "" || size == "auto" {
		size = "1024x1024"
	}
	if quality == "" || quality == "auto" {
		quality = "medium"
	}
	text := tokens(q.Prompt[0])
	pictures := imageTokens * (len(q.files) + len(q.Images))
	usage := func(images int) any {
		if r.noUsage {
			return absent
		}
		output := imageTokens*images + partialTokens*images*q.PartialImages
		return object{
			"input_tokens", text + pictures, "input_tokens_details", object{"text_tokens", text, "image_tokens", pictures},
			"output_tokens", output, "total_tokens", text + pictures + output,
		}
	}
	shape := object{"size", size, "quality", quality, "background", "opaque", "output_format", "png"}
	created := time.Now().Unix()
	if !q.Stream {
		data := make([]object, n)
		for i := range data {
			if q.format() == "url" {
				data[i] = object{"url", fmt.Sprintf("data:image/png;base64,%s", picture(q.Prompt[0], i))}
			} else {
				data[i] = object{"b64_json", picture(q.Prompt[0], i)}
			}
		}
		return &answer{whole: append(object{"created", created, "data", data, "usage", usage(n)}, shape...)}, nil
	}
	return &answer{pieces: n * (1 + q.PartialImages), events: func(s *sender) {
		for i := range n {
			for k := range q.PartialImages {
				s.piece(event+".partial_image", append(object{
					"type", event + ".partial_image", "b64_json", picture(q.Prompt[0], i+k+1), "created_at", created, "partial_image_index", k,
				}, shape...))
			}
			count := any(absent)
			if i == n-1 {
				count = usage(n)
			}
			s.piece(event+".completed", append(object{
				"type", event + ".completed", "b64_json", picture(q.Prompt[0], i), "created_at", created, "usage", count,
			}, shape...))
		}
	}}, nil
}

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// picture returns a PNG of 16 by 16 pixels in Base64.
func picture(prompt string, variant int) string {
	h := fnv.New32a()
	fmt.Fprint(h, prompt, variant)
	seed := h.Sum32()
	m := image.NewRGBA(image.Rect(0, 0, 16, 16))
	for i := range 256 {
		m.Set(i%16, i/16, color.RGBA{uint8(seed) + uint8(i%16*8), uint8(seed>>8) + uint8(i/16*8), uint8(seed >> 16), 255})
	}
	var data bytes.Buffer
	_ = png.Encode(&data, m) // a bytes.Buffer returns no error
	return base64.StdEncoding.EncodeToString(data.Bytes())
}

// readSpeech sets the prompt of /v1/audio/speech.
func (q *request) readSpeech() error {
	var text string
	if len(q.Input) == 0 || json.Unmarshal(q.Input, &text) != nil || text == "" {
		return missing("input")
	}
	q.Prompt = list{text}
	return nil
}

// answerSpeech answers /v1/audio/speech: a tone for each character.
func answerSpeech(q *request, r simulation) (*answer, error) {
	text := []rune(q.Prompt[0])
	samples := len(text) * samplesPerSecond / charactersPerSec
	var sound []byte
	var media string
	switch format := cmp.Or(q.format(), "mp3"); format {
	case "mp3": // silent frames of MPEG 1, layer III, 128 kbit/s, 44.1 kHz
		frame := append([]byte{0xff, 0xfb, 0x90, 0x64}, make([]byte, 413)...)
		sound, media = bytes.Repeat(frame, 1+len(text)*2), "audio/mpeg"
	case "wav":
		sound, media = append(wavHead(2*samples), tone(samples)...), "audio/wav"
	case "pcm":
		sound, media = tone(samples), "audio/pcm"
	default:
		return nil, invalid("response_format", "response_format: %q is not supported by the demo; allowed: mp3, wav, pcm.", format)
	}
	if q.StreamFormat != "sse" {
		return &answer{raw: sound, media: media}, nil
	}
	const part = 4096
	return &answer{pieces: (len(sound) + part - 1) / part, events: func(s *sender) {
		for chunk := range slices.Chunk(sound, part) {
			s.piece("", object{"type", "speech.audio.delta", "audio", base64.StdEncoding.EncodeToString(chunk)})
		}
		usage := any(absent)
		if in, out := tokens(q.Prompt[0]), len(text)*20/charactersPerSec+1; !r.noUsage {
			usage = object{"input_tokens", in, "output_tokens", out, "total_tokens", in + out}
		}
		s.event("", object{"type", "speech.audio.done", "usage", usage})
	}}, nil
}

// tone returns samples of 16 bits.
func tone(samples int) (pcm []byte) {
	for i := range samples {
		pcm = binary.LittleEndian.AppendUint16(pcm, uint16(int16(4000*math.Sin(float64(i)*2*math.Pi*440/samplesPerSecond))))
	}
	return pcm
}

// wavHead returns the head of a WAV file with one channel.
func wavHead(size int) []byte {
	head := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(36+size))
	head = append(head, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	head = binary.LittleEndian.AppendUint32(head, samplesPerSecond)
	head = binary.LittleEndian.AppendUint32(head, 2*samplesPerSecond)
	head = append(head, "\x02\x00\x10\x00data"...)
	return binary.LittleEndian.AppendUint32(head, uint32(size))
}

// readRecording sets the prompt of /v1/audio/transcriptions and /v1/audio/translations, which is
// optional there. The transcript of the demo is the prompt.
func (q *request) readRecording() error {
	if len(q.files) == 0 {
		return missing("file")
	}
	if len(q.Prompt) == 0 {
		q.Prompt = list{"The demo has no ears, so it writes this text for every recording."}
	}
	return nil
}

// seconds returns the length of the recording.
func (q *request) seconds() (n float64) {
	for _, data := range q.files {
		if len(data) > 44 && string(data[:4]) == "RIFF" {
			rate := int(binary.LittleEndian.Uint32(data[28:]))
			return float64(len(data)-44) / float64(max(rate, 1))
		}
		n += float64(len(data)) / secondsOfFile
	}
	return n
}

// answerRecording answers /v1/audio/transcriptions and /v1/audio/translations. A model whose name has
// "transcribe" reports tokens, any other reports seconds.
func answerRecording(q *request, r simulation) (*answer, error) {
	text, seconds := q.Prompt[0], q.seconds()
	usage := any(absent)
	switch {
	case r.noUsage:
	case strings.Contains(q.Model, "transcribe"):
		audio, out := int(math.Ceil(seconds*10)), tokens(text)
		usage = object{
			"type", "tokens", "input_tokens", audio, "input_token_details", object{"audio_tokens", audio, "text_tokens", 0},
			"output_tokens", out, "total_tokens", audio + out,
		}
	default:
		usage = object{"type", "duration", "seconds", int(math.Ceil(seconds))}
	}
	end := time.Unix(0, 0).UTC().Add(time.Duration(seconds * float64(time.Second)))
	switch format := cmp.Or(q.format(), "json"); {
	case q.Stream && format == "json":
		list := slices.Collect(pieces(text))
		return &answer{pieces: len(list), events: func(s *sender) {
			for _, piece := range list {
				s.piece("", object{"type", "transcript.text.delta", "delta", piece})
			}
			s.event("", object{"type", "transcript.text.done", "text", text, "usage", usage})
		}}, nil
	case format == "json":
		return &answer{whole: object{"text", text, "usage", usage}}, nil
	case format == "verbose_json":
		segment := object{"id", 0, "start", 0.0, "end", seconds, "text", text}
		return &answer{whole: object{
			"task", "transcribe", "language", "english", "duration", seconds, "text", text, "segments", []object{segment}, "usage", usage,
		}}, nil
	case format == "text":
		return &answer{raw: []byte(text + "\n"), media: "text/plain; charset=utf-8"}, nil
	case format == "srt":
		return &answer{raw: fmt.Appendf(nil, "1\n00:00:00,000 --> %s\n%s\n", strings.Replace(end.Format("15:04:05.000"), ".", ",", 1), text), media: "text/plain; charset=utf-8"}, nil
	case format == "vtt":
		return &answer{raw: fmt.Appendf(nil, "WEBVTT\n\n00:00:00.000 --> %s\n%s\n", end.Format("15:04:05.000"), text), media: "text/vtt; charset=utf-8"}, nil
	default:
		return nil, invalid("response_format", "response_format: %q is not supported by the demo.", format)
	}
}
