package modelcall

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictform"
)

// ParseForm checks a form against the schema of its route, as Parse checks JSON. It returns the fields
// of the form as JSON: the other methods take it as the body.
func (q *Request) ParseForm(s *Schema, form *strictform.Form, sharedState bool) ([]byte, *fault.Fault) {
	fields, f := form.JSON(s.members, s.files)
	if f != nil {
		return nil, f
	}
	for i := range form.Parts {
		if part := &form.Parts[i]; part.File {
			q.files = append(q.files, fileOf(part, s.Unit))
		}
	}
	return fields, q.Parse(s, fields, sharedState)
}

// file is a file of a form.
type file struct {
	size      int64
	recording recording // of an audio file
}

func fileOf(part *strictform.Part, unit catalog.Unit) file {
	f := file{size: int64(len(part.Data))}
	if unit == catalog.SecondUnit {
		f.recording = recordingOf(part.Data)
	}
	return f
}

const (
	// lowestByteRate is the lowest rate that is reserved for a recording that is not WAV: 6 kbit/s.
	lowestByteRate = 750

	// usualByteRate is the rate by which the length of a recording is estimated: 30 kbit/s.
	usualByteRate = 3750

	// fileBytesPerToken is audioBytesPerToken without Base64.
	fileBytesPerToken = audioBytesPerToken * 3 / 4

	// tokensPerSecond is the estimated number of tokens of a second of a recording.
	tokensPerSecond = 20

	// partialImageTokens is what a vendor charges for each partial image (OpenAI's guide to image
	// generation, "Partial images cost").
	partialImageTokens = 100
)

// unreportedFormats are the formats of a transcript that have neither tokens nor seconds.
var unreportedFormats = []string{"text", "srt", "vtt"}

// Unreported reports whether the answer has a format in which a backend can report no usage: speech, or
// a transcript that is not JSON.
func (q *Request) Unreported(body []byte) bool {
	switch q.schema.Unit {
	case catalog.CharacterUnit:
		return q.values[slotStreamFormat].Text(body) != "sse"
	case catalog.SecondUnit:
		return slices.Contains(unreportedFormats, q.values[slotFormat].Text(body))
	}
	return false
}

// RefuseUnreported refuses a call whose answer cannot report what the call is charged by. byTokens says
// that the price charges tokens, and bySeconds that it charges seconds.
func (q *Request) RefuseUnreported(body []byte, byTokens, bySeconds bool) *fault.Fault {
	format := q.values[slotFormat].Text(body)
	switch {
	case q.schema.Unit == catalog.CharacterUnit && byTokens && q.Unreported(body):
		return fault.At(fault.UnpricedOption, "stream_format",
			"`stream_format`: an answer that is only audio reports no tokens, and this model is charged by its tokens; allowed: sse; the operator can price it: per character <amount>")
	case q.schema.Unit != catalog.SecondUnit:
		return nil
	case byTokens && q.Unreported(body):
		return fault.At(fault.UnpricedOption, "response_format",
			"`response_format`: %q reports no tokens, and this model is charged by its tokens; allowed: json; the operator can price it: request <amount>", format)
	case !bySeconds || q.exactRecording():
		return nil
	case q.Stream:
		return fault.At(fault.UnpricedOption, "stream",
			"`stream`: a stream reports no seconds, and this model is charged by them; allowed: false, or a WAV file, whose length is known")
	case slices.Contains(q.schema.reportSeconds, format):
		return nil
	}
	return fault.At(fault.UnpricedOption, "response_format",
		"`response_format`: %q reports no seconds, and this model is charged by them; allowed: %s, or a WAV file, whose length is known",
		orDefault(format), strings.Join(slices.DeleteFunc(slices.Clone(q.schema.reportSeconds), func(name string) bool { return name == "" }), ", "))
}

func orDefault(format string) string {
	return cmp.Or(format, "json")
}

func (q *Request) exactRecording() bool { return len(q.files) > 0 && q.files[0].recording.exact }

// addMedia adds what the call asks for beside text.
func (q *Request) addMedia(body []byte, a *catalog.CallSpec) {
	switch q.schema.Unit {
	case catalog.ImageUnit:
		a.Image, a.ImageOut = true, true
		a.Units = catalog.Units{
			Unit: catalog.ImageUnit, Count: a.Choices,
			Size: q.values[slotSize].Text(body), Quality: q.values[slotQuality].Text(body),
		}
		if partial, ok := q.values[slotPartialImages].Int(body); ok {
			a.PartialOutput = min(a.Choices, maxCount) * partial * partialImageTokens
		}
		for range q.files {
			a.InlineInput += imageTokens
			a.Media.Images++
		}
	case catalog.CharacterUnit:
		a.Audio, a.AudioParam = true, "model"
		a.Units = catalog.Units{
			Unit: catalog.CharacterUnit, Exact: true,
			Count: int64(utf8.RuneCountInString(q.values[slotPrompt].Text(body))),
		}
	case catalog.SecondUnit:
		a.Audio, a.AudioParam = true, "model"
		a.Units.Unit = catalog.SecondUnit
		for _, f := range q.files {
			seconds := ceil(f.size, usualByteRate)
			if f.recording.exact {
				seconds = f.recording.longest
			}
			a.Units.Count, a.Units.Exact, a.Units.Estimate = f.recording.longest, f.recording.exact, seconds
			a.InlineInput += f.size/fileBytesPerToken + 1
			a.Media.AudioTokens += min(seconds*tokensPerSecond, f.size/fileBytesPerToken+1)
		}
	}
}

// InlineTokens returns the number of tokens by which the files of a form count towards the tokens per
// minute of a key.
func (q *Request) InlineTokens() (tokens int64) {
	for _, f := range q.files {
		if q.schema.Unit == catalog.SecondUnit {
			tokens += min(f.recording.longest, ceil(f.size, usualByteRate)) * tokensPerSecond
		} else {
			tokens += catalog.ImageEstimate
		}
	}
	return tokens
}

// Images returns the number of images that the call asks for.
func (q *Request) Images(body []byte) int64 {
	if n, ok := q.values[slotChoices].Int(body); ok {
		return n
	}
	return 1
}
