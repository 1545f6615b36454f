package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// surface is what is special about a call whose answer is not a stream of text.
type surface struct {
	body        string // of the request; MODEL stands for the model
	contentType string // of the request, if it is not JSON
	mediaType   string // of the answer
	opaque      bool   // only the end of the connection ends the answer
	textBytes   int64  // of the input, by which it is estimated
	prompts     int64  // each of which may fill the context

	// A call with a price of a unit is charged by its units and not by its tokens.
	unit   nano  // the price of one image, character or second
	units  int64 // what is charged whatever the answer says, or if it does not report seconds
	guess  bool  // units is an estimate
	images int64 // that the call asks for
}

// chargedRoutes are the routes of model calls that are charged.
var chargedRoutes = []string{
	"/v1/messages", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/compact",
	"/v1/embeddings", "/v1/rerank", "/v2/rerank", "/v1/moderations",
	"/v1/images/generations", "/v1/images/edits", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations",
}

// unitPrices are the prices of one image, of one character, and of one second, by model.
var unitPrices = map[string]nano{
	"gpt-image-1": 40_000_000, "gpt-image-2": 17_000_003,
	"tts-1": 15_000, "tts-2": 7_001,
	"whisper-1": 100_000, "whisper-2": 33_337,
}

// unitLines returns the prices of units as lines of a Caddyfile.
func unitLines() string {
	var lines strings.Builder
	for model, each := range unitPrices {
		word := map[string]string{"gpt-image": "image", "tts": "per character", "whisper": "per second"}[model[:strings.LastIndex(model, "-")]]
		fmt.Fprintf(&lines, "\n\t\tprice %s {\n\t\t\t%s %v\n\t\t\t%s\n\t\t}\n", model, word, each, onDisconnect[model])
	}
	return lines.String()
}

// byUnits reports whether the call is charged by its units.
func (k *scriptedCall) byUnits() bool { return k.surface != nil && k.unit > 0 }

// counted returns the units that are charged, and whether they are an estimate.
func (k *scriptedCall) counted() (n int64, guessed bool) {
	if k.units > 0 {
		for _, u := range k.counts() {
			if u.seconds > 0 {
				return u.seconds, false
			}
		}
		return k.units, k.guess
	}
	if had := slices.ContainsFunc(k.events[:k.stop], func(u scriptEvent) bool { return u.last }); k.end == clientGone && !had && !k.continues() {
		return k.images, true
	}
	whole, partial := int64(0), int64(0)
	for _, u := range k.counts() {
		whole, partial = whole+u.images, partial+u.partialImages
	}
	return max(whole, min(partial, 1)), false
}

// endsWhole reports whether a clean end of the connection makes the answer whole, although parts of it
// are missing: an empty answer costs nothing, and a stream may have fewer images than the call asks for.
func (k *scriptedCall) endsWhole() bool {
	switch {
	case k.surface == nil || k.end != truncated:
		return false
	case k.mediaType != "":
		return k.stop == 0
	}
	return slices.ContainsFunc(k.events[:k.stop], func(u scriptEvent) bool { return u.images > 0 })
}

// surfaceCall draws a call of one of all routes that are charged.
func (i callGenerator) surfaceCall(number int) *scriptedCall {
	if i.IntN(3) == 0 {
		return i.scriptedCall(number)
	}
	k := i.newCall(number)
	k.surface = &surface{mediaType: "application/json"}
	switch i.IntN(8) {
	case 7:
		i.compaction(k)
	case 0:
		i.embeddings(k)
	case 1:
		i.rerank(k)
	case 2:
		i.moderation(k)
	case 3, 4:
		i.images(k)
	case 5:
		i.speech(k)
	default:
		i.recording(k)
	}
	i.ending(k)
	return k
}

// inputOnly writes an answer as JSON that reports only input, at its start, at its end, or nowhere.
func (i callGenerator) inputOnly(k *scriptedCall, report func(tokens) string, parts ...string) {
	in := i.input()
	in = tokens{Input: max(in.Input, 1)} // these answers have no other kinds
	for n, part := range parts {
		k.events = append(k.events, scriptEvent{wire: part, content: true, last: n == len(parts)-1})
	}
	usage, at := "", &k.events[i.IntN(2)*(len(parts)-1)]
	if report != nil && i.IntN(4) > 0 {
		usage, at.input, at.output = report(in), &in, new(tokens)
	}
	switch {
	case usage == "":
	case at.last:
		at.wire = strings.TrimSuffix(at.wire, "}") + "," + usage + "}"
	default:
		at.wire = "{" + usage + "," + at.wire[1:]
	}
}

func (i callGenerator) embeddings(k *scriptedCall) {
	k.path, k.body = "/v1/embeddings", `{"model":"MODEL","input":`+quoted(k.prompt)+`}`
	k.textBytes, k.prompts = int64(len(k.prompt)), 1
	i.inputOnly(k, func(in tokens) string {
		return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":%[1]d}`, in.Input)
	},
		`{"object":"list","data":[`, `{"object":"embedding","index":0,"embedding":[0.25,`, `-0.5]}`, `],"model":"m"}`)
}

// compaction draws a call of /v1/responses/compact. Its answer is JSON with text. Three of four answers
// report their usage.
func (i callGenerator) compaction(k *scriptedCall) {
	k.path, k.textBytes, k.prompts = "/v1/responses/compact", int64(len(k.prompt)), 1
	k.body = fmt.Sprintf(`{"model":"MODEL","max_output_tokens":%d,"input":%s}`, k.maxTokens, quoted(k.prompt))
	k.events = []scriptEvent{{content: true, wire: `{"id":"resp_1","object":"response.compaction","created_at":1,"output":[`}}
	for n := range 1 + i.IntN(4) {
		text := i.text(40)
		k.events = append(k.events, scriptEvent{content: true, text: text, wire: strings.Repeat(",", min(n, 1)) +
			`{"type":"message","role":"user","content":[{"type":"input_text","text":` + quoted(text) + `}]}`})
	}
	k.events = append(k.events, scriptEvent{content: true, wire: `,{"type":"compaction","encrypted_content":"QUJD"}`})
	end := scriptEvent{last: true, wire: "]}"}
	if i.IntN(4) > 0 {
		in, out := i.input(), tokens{Output: 1 + i.Int64N(300)}
		in = tokens{Input: in.Input, CacheRead: in.CacheRead} // the dialect has no other kinds
		end.input, end.output, end.wire = &in, &out, `],"usage":`+usageOf(in, out, "input", "output")+"}"
	}
	k.events = append(k.events, end)
}

func (i callGenerator) rerank(k *scriptedCall) {
	documents := 1 + i.IntN(4)
	list := "[" + strings.Repeat(`,"a document"`, documents)[1:] + "]"
	k.path = []string{"/v1/rerank", "/v2/rerank"}[i.IntN(2)]
	k.body = fmt.Sprintf(`{"model":"MODEL","query":%s,"documents":%s}`, quoted(k.prompt), list)
	k.prompts = int64(documents)
	// The query counts with each document. The documents count as JSON, without the brackets.
	k.textBytes = int64(len(k.prompt) + len(list) - 2 + (documents-1)*len(quoted(k.prompt)))
	i.inputOnly(k, func(in tokens) string { return fmt.Sprintf(`"usage":{"total_tokens":%d}`, in.Input) },
		`{"results":[`, `{"index":0,"relevance_score":0.9}`, `]}`)
}

func (i callGenerator) moderation(k *scriptedCall) {
	k.path, k.body = "/v1/moderations", `{"model":"MODEL","input":`+quoted(k.prompt)+`}`
	k.textBytes, k.prompts = int64(len(k.prompt)), 1
	i.inputOnly(k, nil, `{"id":"modr-1","results":[`, `{"flagged":false}`, `]}`)
}

// byUnit makes the call one of a model with a price of a unit.
func (i callGenerator) byUnit(k *scriptedCall, models ...string) {
	k.model = models[i.IntN(len(models))]
	k.unit = unitPrices[k.model]
}

// images draws a call of images, as a stream or as JSON, for a prompt or for an edit.
func (i callGenerator) images(k *scriptedCall) {
	i.byUnit(k, "gpt-image-1", "gpt-image-2")
	n, streams := 1+i.IntN(3), i.IntN(2) == 0
	k.images = int64(n)
	kind := "image_generation"
	k.path = "/v1/images/generations"
	k.body = fmt.Sprintf(`{"model":"MODEL","prompt":%s,"n":%d,"stream":%t}`, quoted(k.prompt), n, streams)
	if i.IntN(2) == 0 {
		kind, k.path = "image_edit", "/v1/images/edits"
		k.form("image", "a.png", "\x89PNG", "prompt", "x", "n", fmt.Sprint(n), "stream", fmt.Sprint(streams))
	}
	if streams {
		k.mediaType = ""
		for image := range n {
			for range i.IntN(3) {
				k.events = append(k.events, scriptEvent{content: true, partialImages: 1,
					wire: event(kind+".partial_image", fmt.Sprintf(`{"type":"%s.partial_image","b64_json":"QUJD"}`, kind))})
			}
			k.events = append(k.events, scriptEvent{content: true, images: 1, last: image == n-1,
				wire: event(kind+".completed", fmt.Sprintf(`{"type":"%s.completed","b64_json":"QUJD"}`, kind))})
		}
		return
	}
	k.events = []scriptEvent{{content: true, wire: `{"created":1,"data":[`}}
	for image := range n {
		k.events = append(k.events, scriptEvent{content: true, images: 1, wire: strings.Repeat(",", min(image, 1)) + `{"b64_json":"QUJD"}`})
	}
	k.events = append(k.events, scriptEvent{content: true, last: true, wire: `]}`})
}

// form makes the body a form with one file and these fields, given as name, value, name, value.
func (k *scriptedCall) form(file, name, data string, fields ...string) {
	var text strings.Builder
	part := func(header, value string) {
		fmt.Fprintf(&text, "--b\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n", header, value)
	}
	part(`name="model"`, "MODEL")
	for n := 0; n < len(fields); n += 2 {
		part(fmt.Sprintf("name=%q", fields[n]), fields[n+1])
	}
	part(fmt.Sprintf("name=%q; filename=%q", file, name), data)
	k.body, k.contentType = text.String()+"--b--\r\n", "multipart/form-data; boundary=b"
}

// opaqueAnswer makes the answer these bytes, which say nothing of usage.
func (k *scriptedCall) opaqueAnswer(mediaType string, parts ...string) {
	k.mediaType, k.opaque = mediaType, true
	for _, part := range parts {
		k.events = append(k.events, scriptEvent{content: true, wire: part})
	}
	k.events = append(k.events, scriptEvent{last: true})
}

func (i callGenerator) speech(k *scriptedCall) {
	i.byUnit(k, "tts-1", "tts-2")
	k.path, k.body = "/v1/audio/speech", `{"model":"MODEL","voice":"alloy","input":`+quoted(k.prompt)+`}`
	k.units = int64(len([]rune(k.prompt)))
	k.opaqueAnswer("audio/mpeg", "ID3", "sound", "more")
}

// recording draws a transcription or a translation: of a WAV file, whose length is known, or of
// another one, whose length the answer may report.
func (i callGenerator) recording(k *scriptedCall) {
	i.byUnit(k, "whisper-1", "whisper-2")
	k.path = []string{"/v1/audio/transcriptions", "/v1/audio/translations"}[i.IntN(2)]
	if i.IntN(2) == 0 {
		k.units = int64(1 + i.IntN(5))
		bytes := int(k.units) * 100
		k.form("file", "a.wav", "RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x64\x00\x00\x00\x64\x00\x00\x00\x01\x00\x08\x00data"+
			string([]byte{byte(bytes), byte(bytes >> 8), 0, 0})+strings.Repeat("\x80", bytes), "response_format", "text")
		k.opaqueAnswer("text/plain", "what ", "it ", "says")
		return
	}
	bytes := 1 + i.IntN(20_000)
	k.units, k.guess = int64(bytes+3749)/3750, true // at 30 kbit/s
	k.form("file", "a.mp3", strings.Repeat("\x80", bytes), "response_format", "verbose_json")
	k.events = []scriptEvent{{wire: `{"task":"transcribe",`}, {wire: `"text":"what it says",`}, {wire: `"language":"english"`}, {wire: "}", last: true}}
	for n := range k.events {
		k.events[n].content = true
	}
	if i.IntN(4) > 0 {
		at := &k.events[i.IntN(2)]
		at.seconds = int64(1 + i.IntN(20))
		at.wire += fmt.Sprintf(`"duration":%d.5,`, at.seconds-1) // a second that has begun counts
	}
}
