package call

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
	"github.com/caddy-modelgate/modelgate/internal/strictform"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// maxMedia is the largest body of a route of images or audio, files included.
const maxMedia = 32 << 20

// mediaRoutes are the routes of modelgate_openai for images and audio.
var mediaRoutes = []*route{
	{Route: post("/v1/images/generations", dialect.OpenAI, 8<<20), name: "images", schema: modelcall.Images, answer: usage.Images},
	{
		Route: post("/v1/images/edits", dialect.OpenAI, maxMedia),
		name:  "image_edits", schema: modelcall.ImageEdits, form: modelcall.ImageEditsForm, answer: usage.Images,
	},
	{Route: post("/v1/audio/speech", dialect.OpenAI, 8<<20), name: "speech", schema: modelcall.Speech, answer: usage.Speech},
	{Route: post("/v1/audio/transcriptions", dialect.OpenAI, maxMedia), name: "transcriptions", form: modelcall.TranscriptionsForm, answer: usage.Transcript},
	{Route: post("/v1/audio/translations", dialect.OpenAI, maxMedia), name: "translations", form: modelcall.TranslationsForm, answer: usage.Transcript},
}

// chooseSchema sets the schema of the body: that of forms if the body is one.
func (c *call) chooseSchema(header http.Header) *fault.Fault {
	types := header["Content-Type"]
	switch {
	case c.route.form == nil:
	case len(types) == 1 && strictform.Is(types[0]):
		c.schema, c.formType = c.route.form, types[0]
	case c.route.schema == nil || strings.Contains(strings.ToLower(strings.Join(types, ",")), strictform.MediaType):
		return fault.New(fault.UnsupportedMediaType, "this route takes a form: send it as "+strictform.MediaType)
	}
	return nil
}

// parse checks the body against the schema.
func (c *call) parse() (f *fault.Fault) {
	shared := c.sharesState()
	c.request.OwnsState = c.owns()
	if c.formType == "" {
		return c.request.Parse(c.schema, c.body.bytes(), shared)
	}
	form, f := strictform.Parse(c.formType, c.body.bytes())
	if f != nil {
		return f
	}
	c.formType = form.ContentType()
	c.modelField = [2]int{}
	if i := slices.IndexFunc(form.Parts, func(p strictform.Part) bool { return p.Name == "model" && !p.File }); i >= 0 {
		c.modelField = [2]int{form.Parts[i].Start, form.Parts[i].Start + len(form.Parts[i].Data)}
	}
	c.fields, f = c.request.ParseForm(c.schema, form, shared)
	return f
}

// members returns the JSON that was checked: the body, or the fields of a form.
func (c *call) members() []byte {
	if c.fields != nil {
		return c.fields
	}
	return c.body.bytes()
}
