package usage

import "math"

// Form is the form of an answer: the text of a model, or media.
type Form uint8

// The forms of answers.
const (
	TextForm       Form = iota // of a model that writes
	ImagesForm                 // images
	TranscriptForm             // the text of a recording
	SpeechForm                 // speech
)

// Format declares how the answers of a route are read: their usage, and the end of a stream. Each route
// has one.
type Format struct {
	Form Form

	// InputOnly is set if the answer has no charged output, such as embeddings. Then its output counts as
	// reported. If the backend reports only a total, the total is the input.
	InputOnly bool

	messages bool               // the names of usage in messages take precedence over those of completions
	chunks   bool               // a stream has chunks of a completion
	ended    func(*events) bool // reports whether a stream has reached its end
}

// The formats of answers.
var (
	// Message is for messages. Its streams end with message_stop.
	Message = &Format{messages: true, ended: func(e *events) bool { return e.stopped }}

	// Completion is for completions. Its streams end with [DONE], or when every choice has a
	// finish_reason.
	Completion = &Format{chunks: true, ended: choicesEnded}

	// InputOnly is for embeddings, scores of documents and moderations.
	InputOnly = &Format{InputOnly: true, chunks: true, ended: choicesEnded}

	// Response is for responses. Its streams end with response.completed, response.incomplete or [DONE].
	Response = &Format{ended: lastEventEnded}

	// Images is for images. Its streams end with [DONE], or with the last image that the call asks for.
	Images = &Format{Form: ImagesForm, ended: imagesEnded}

	// Transcript is for texts of recordings. Its streams end with transcript.text.done or [DONE].
	Transcript = &Format{Form: TranscriptForm, ended: lastEventEnded}

	// Speech is for speech. Its streams end with speech.audio.done or [DONE].
	Speech = &Format{Form: SpeechForm, ended: lastEventEnded}
)

func choicesEnded(e *events) bool { return e.done || e.choices.allFinished() }

func lastEventEnded(e *events) bool { return e.done || e.stopped || e.ended() }

func imagesEnded(e *events) bool {
	return e.done || e.media.wanted > 0 && e.mediaSoFar().completed >= e.media.wanted
}

// media returns the state of an answer with media, or nil if the answer is text.
func (f *Format) media() *mediaAnswer {
	switch f.Form {
	case TextForm:
		return nil
	case ImagesForm:
		return &mediaAnswer{root: imageAnswer, wanted: 1}
	}
	return &mediaAnswer{root: recordingAnswer}
}

// Wants sets the number of images that the call asks for. In an answer without images it has no effect.
// It must be called before Write.
func (r *Reader) Wants(images int64) {
	if m := r.events.media; m != nil {
		m.wanted = images
	}
}

// Opaque sets that the answer has a format without usage, such as speech. Its bytes are not read. Opaque
// must be called before Write.
func (r *Reader) Opaque() { r.unreadable = true }

// WholeIfEnded reports whether an answer is whole if its connection ended cleanly here. It is for answers
// that do not show their end: a stream of images with at least one that is not partial and no error, which
// may have fewer images than the call asks for, and text after a JSON text, or instead of it, that is no JSON.
func (r *Reader) WholeIfEnded() bool {
	if r.stream {
		return r.format().Form == ImagesForm && !r.Failed() && r.events.mediaSoFar().completed > 0
	}
	return r.events.document.state == inScalar && r.events.document.depth == 0
}

// assign gives the tokens of a side to the medium of the form, if the backend does not report tokens
// of that medium. Without it, the tokens of an image would have the price of text.
func (form Form) assign(t *Tokens, f *figures) {
	switch {
	case form == ImagesForm && !f.has(imageOutput):
		t.ImageOutput, t.Output = t.ImageOutput+t.Output, 0
	case form == SpeechForm && !f.has(audioOutput):
		t.AudioOutput, t.Output = t.AudioOutput+t.Output, 0
	case form == TranscriptForm && !f.has(audioInput):
		t.AudioInput, t.Input = t.AudioInput+t.Input, 0
	}
}

// mediaAnswer is what an answer with media has beside its usage: images, or the length of a recording.
type mediaAnswer struct {
	root      place // of the document
	wanted    int64 // the number of images that the call asks for
	delivered int64 // images and partial images
	partial   int64 // partial images of the previous events
	completed int64 // whole events with a whole image
	inElement bool  // the element of the list that is being read has an image
	listed    bool  // the answer has a list of images
	event     mediaEvent
	seconds   int64 // the length of the recording, rounded up; zero: not reported
	size      Name
	quality   Name
	report    figures // of the last usage object alone
}

// mediaEvent is what the current event of a stream has.
type mediaEvent struct {
	picture        bool // an image, partial or not
	partial, whole bool // the type of the event
}

// mediaEvent returns the current event of an answer with media. In an answer of text, it has no effect.
func (d *document) mediaEvent() *mediaEvent {
	if d.media == nil {
		return new(mediaEvent)
	}
	return &d.media.event
}

// addPicture counts an image, at its first byte. An element of a list counts once, even if it has the
// image and a link to it.
func (d *document) addPicture(listed bool) {
	m := d.media
	if listed && m.inElement || !listed && m.event.picture {
		return
	}
	m.inElement = listed
	m.delivered = min(m.delivered+1, math.MaxInt32)
	m.event.picture = true
}

// endMediaEvent counts the media of the event that has ended.
func (d *document) endMediaEvent() {
	before := d.media.completed
	*d.media = d.mediaSoFar()
	d.media.event = mediaEvent{}
	if d.media.completed > before && d.seen&seenUsage != 0 {
		d.reports.addImage(&d.media.report, d.media.completed)
	}
}

// mediaSoFar returns what an answer with media has, as if the current event ended here.
func (d *document) mediaSoFar() mediaAnswer {
	if d.media == nil {
		return mediaAnswer{}
	}
	m := *d.media
	switch {
	case m.event.picture && m.event.partial:
		m.partial++
	case m.event.picture && m.event.whole && d.state == ended:
		m.completed++
	}
	return m
}

// images returns the number of images. Partial images of which no whole one came are one image, because
// the backend has worked.
func (m mediaAnswer) images() int64 {
	return max(m.delivered-m.partial, min(m.delivered, 1))
}

// hasPicture reports whether the data of an image began.
func (d *document) hasPicture() bool { return d.media != nil && d.media.delivered > 0 }
