package demo

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// This file has the endpoints of audio. WAV and PCM are a tone, MP3 is silence.

const (
	bytesPerSecond      = 4000 // of a recording that is not WAV
	samplesPerSecond    = 24000
	charactersPerSecond = 15
)

// readSpeech sets the prompt of /v1/audio/speech.
func (q *request) readSpeech() error {
	var text string
	if len(q.Input) == 0 || json.Unmarshal(q.Input, &text) != nil || text == "" {
		return missing("input")
	}
	q.Prompt = list{text}
	return nil
}

// answerSpeech answers /v1/audio/speech: a sound whose length depends on the number of
// characters.
func answerSpeech(q *request, r simulation) (*answer, error) {
	text := []rune(q.Prompt[0])
	samples := len(text) * samplesPerSecond / charactersPerSecond
	var sound []byte
	var media string
	switch format := cmp.Or(q.ResponseFormat.Type, "mp3"); format {
	case "mp3": // silent frames of MPEG 1, layer III, 128 kbit/s, 44.1 kHz
		frame := append([]byte{0xff, 0xfb, 0x90, 0x64}, make([]byte, 413)...)
		sound, media = bytes.Repeat(frame, 1+len(text)*2), "audio/mpeg"
	case "wav":
		sound, media = append(wavHeader(2*samples), tone(samples)...), "audio/wav"
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
		if in, out := tokens(q.Prompt[0]), len(text)*20/charactersPerSecond+1; !r.noUsage {
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

// wavHeader returns the header of a WAV file with one channel and size bytes of samples.
func wavHeader(size int) []byte {
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
		n += float64(len(data)) / bytesPerSecond
	}
	return n
}

// answerTranscription answers /v1/audio/transcriptions, and answerTranslation /v1/audio/translations.
func answerTranscription(q *request, r simulation) (*answer, error) {
	return q.transcript(r, "transcribe")
}

func answerTranslation(q *request, r simulation) (*answer, error) {
	return q.transcript(r, "translate")
}

// transcript answers with the text of a recording. A model whose name has "transcribe" reports tokens,
// any other reports seconds.
func (q *request) transcript(r simulation, task string) (*answer, error) {
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
	speech := object{"type", "transcript.text.segment", "id", "seg_0", "start", 0.0, "end", seconds, "speaker", "A", "text", text}
	end := time.Unix(0, 0).UTC().Add(time.Duration(seconds * float64(time.Second)))
	switch format := cmp.Or(q.ResponseFormat.Type, "json"); {
	case q.Stream && (format == "json" || format == "diarized_json"):
		list := slices.Collect(pieces(text))
		return &answer{pieces: len(list), events: func(s *sender) {
			for _, piece := range list {
				s.piece("", object{"type", "transcript.text.delta", "delta", piece})
			}
			if format == "diarized_json" {
				s.event("", speech)
			}
			s.event("", object{"type", "transcript.text.done", "text", text, "usage", usage})
		}}, nil
	case format == "json":
		return &answer{whole: object{"text", text, "usage", usage}}, nil
	case format == "diarized_json":
		return &answer{whole: object{"task", task, "duration", seconds, "text", text, "segments", []object{speech}, "usage", usage}}, nil
	case format == "verbose_json":
		segments, words := q.timestamps(text, seconds)
		return &answer{whole: object{
			"task", task, "language", "english", "duration", seconds, "text", text, "segments", segments, "words", words, "usage", usage,
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

// timestamps returns one segment of all the text, and its words, all of the same length. Each is absent if
// the request names only the other.
func (q *request) timestamps(text string, seconds float64) (segments, words any) {
	segments, words = absent, absent
	if len(q.Granularities) == 0 || slices.Contains(q.Granularities, "segment") {
		ids := make([]int, tokens(text))
		for i := range ids {
			ids[i] = i + 1
		}
		segments = []object{{
			"id", 0, "seek", 0, "start", 0.0, "end", seconds, "text", text, "tokens", ids, "temperature", 0.0,
			"avg_logprob", logprob, "compression_ratio", 1.0, "no_speech_prob", 0.01,
		}}
	}
	if slices.Contains(q.Granularities, "word") {
		all := strings.Fields(text)
		list := make([]object, len(all))
		for i, word := range all {
			list[i] = object{"word", word, "start", seconds * float64(i) / float64(len(all)), "end", seconds * float64(i+1) / float64(len(all))}
		}
		words = list
	}
	return segments, words
}
