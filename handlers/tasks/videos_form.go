package tasks

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/strictform"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// The forms of OpenAI's former videos API (docs/reference/tasks.md#videos). A request becomes one of
// the generic form, so that it has its checks, its price and its backends.
var (
	videos = &form{
		name: "videos", names: videoNames, keep: (*submission).videoRequest, answer: videoCreated,
		decode: func(s *submission, body []byte) (generation.Request, []string, error) {
			body, refused := asJSON(s.r.Header.Get("Content-Type"), body)
			if refused != nil {
				return generation.Request{}, nil, refused
			}
			return plain(generation.DecodeVideos)(s, body)
		},
	}
	remix = &form{name: "remix", names: videoNames, keep: (*submission).videoRequest, answer: videoCreated, decode: decodeRemix}
)

// videoNames replaces the names of the generic form in errors.
var videoNames = strings.NewReplacer("`width` and `height`", "`size`", "`width`", "`size`", "`height`", "`size`", "`duration`", "`seconds`", "`image`", "`input_reference`")

func videoCreated(s *submission) (any, error) { return s.videoOf(s.r.Context(), s.task) }

// videoRequest returns what the record of the task keeps of the submission.
func (s *submission) videoRequest() *task.VideoRequest {
	g := &s.generation
	v := &task.VideoRequest{Size: g.Size(), RemixOf: g.RemixOf}
	if g.Output.Duration != nil {
		v.Seconds = float64(*g.Output.Duration) / float64(catalog.Second)
	}
	return v
}

// decodeRemix decodes a remix of the video of the path. Only a completed video of /v1/videos can be
// changed: of others it is not known what the new one would cost.
func decodeRemix(s *submission, body []byte) (generation.Request, []string, error) {
	original, err := s.video()
	if err != nil {
		return generation.Request{}, nil, err
	}
	asked := original.Detail.Video
	switch {
	case original.Status != task.Success:
		return generation.Request{}, nil, fault.New(fault.Conflict, "the video is %s; only a completed video can be changed",
			strings.ReplaceAll(string(original.Status), "_", " "))
	case asked == nil:
		return generation.Request{}, nil, fault.New(fault.Conflict, "only a video that was submitted to /v1/videos can be changed")
	}
	s.source = original
	body, refused := asJSON(s.r.Header.Get("Content-Type"), body)
	if refused != nil {
		return generation.Request{}, nil, refused
	}
	return plain(func(body []byte) (generation.Request, *fault.Fault) {
		return generation.DecodeRemix(body, generation.Original{
			ID: original.ID, Model: original.Model, Seconds: asked.Seconds, Size: asked.Size, Ref: *original.Detail.Ref,
		})
	})(s, body)
}

// checkSource returns an error if the video that a remix changes is at another backend.
func (s *submission) checkSource() error {
	if s.source != nil && s.source.Detail.Backend != s.generation.Backend {
		return fault.New(fault.Conflict, "the service that made this video no longer runs its model: submit a new video")
	}
	return nil
}

// reference is the member that may be a file.
const reference = "input_reference"

// imageTypes are the types of files that can be a reference.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// asJSON returns a body as JSON. Each field of a form becomes a member, so that both have the same
// checks. A file becomes a data URL. The members of an object are fields such as
// input_reference[image_url].
func asJSON(contentType string, body []byte) ([]byte, *fault.Fault) {
	if !strictform.Is(contentType) {
		return body, nil
	}
	sent, refused := strictform.Parse(contentType, body)
	if refused != nil {
		return nil, refused
	}
	var top, inner object
	for _, field := range sent.Parts {
		value, refused := valueOf(&field)
		if refused != nil {
			return nil, refused
		}
		if name, nested := strings.CutPrefix(field.Name, reference+"["); nested && strings.HasSuffix(name, "]") {
			inner.add(strings.TrimSuffix(name, "]"), value)
		} else {
			top.add(field.Name, value)
		}
	}
	if inner.Len() > 0 {
		top.add(reference, inner.close())
	}
	return top.close(), nil
}

// object is a JSON object that is being written.
type object struct{ bytes.Buffer }

// add adds a member, also if there is one of this name: the decoder refuses that.
func (o *object) add(name string, value []byte) {
	if o.Len() == 0 {
		o.WriteByte('{')
	} else {
		o.WriteByte(',')
	}
	o.Write(quoted(name))
	o.WriteByte(':')
	o.Write(value)
}

// close returns the object.
func (o *object) close() []byte {
	if o.Len() == 0 {
		o.WriteByte('{')
	}
	o.WriteByte('}')
	return o.Bytes()
}

// quoted returns a text in UTF-8 as JSON.
func quoted(text string) []byte {
	value, _ := json.Marshal(text) // a string cannot fail
	return value
}

// valueOf returns a field as JSON.
func valueOf(field *strictform.Part) ([]byte, *fault.Fault) {
	switch {
	case !field.File && field.Name == reference && bytes.HasPrefix(field.Data, []byte("{")) && json.Valid(field.Data):
		return field.Data, nil
	case !field.File:
		return quoted(string(field.Data)), nil
	case field.Name != reference:
		return nil, fault.At(fault.InvalidParameter, field.Name, "`%s` must not be a file", field.Name)
	}
	kind := http.DetectContentType(field.Data)
	if !slices.Contains(imageTypes, kind) {
		return nil, fault.At(fault.InvalidParameter, reference, "`%s` must be an image: %s", reference, catalog.Either(imageTypes))
	}
	head := `{"image_url":"data:` + kind + ";base64,"
	value := make([]byte, 0, len(head)+base64.StdEncoding.EncodedLen(len(field.Data))+2)
	value = base64.StdEncoding.AppendEncode(append(value, head...), field.Data)
	return append(value, `"}`...), nil
}
