package generation_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
)

// decodeAndCheck decodes and checks a body of /v1/video/generations.
func decodeAndCheck(t *testing.T, body string) (generation.Checked, *fault.Fault) {
	t.Helper()
	r, refused := generation.DecodeGenerations([]byte(body))
	if refused != nil {
		return generation.Checked{}, refused
	}
	return generation.Check(standard(t), r)
}

func TestDecodeGenerationsPassesUnknownMembersOn(t *testing.T) {
	t.Parallel()
	const body = `{"model":"any","prompt":"p","image":"https://files.example/a.png","duration":5.5,"width":1280,"height":720,"fps":24,"seed":-7,"n":2,
		"response_format":"url","user":"u","metadata":{"negative_prompt":"x","deep":{"a":[1.0]}},"unknown":{"b": 1e2},"images":["x"]}`
	got, refused := decodeAndCheck(t, body)
	want := generation.Request{
		Kind: catalog.Video, Model: "any", Prompt: "p", Seed: new(int64(-7)),
		Inputs: []generation.Input{{URL: "https://files.example/a.png", Category: "image", Usage: "firstFrame"}},
		Output: generation.Output{Duration: new(5_500_000 * catalog.Seconds(1)), Count: new(2), Width: new(1280), Height: new(720), FPS: new(24), Resolution: "720P"},
		Fields: got.Fields,
	}
	if refused != nil || !reflect.DeepEqual(got.Request, want) || got.Family != "" || !got.Passing() {
		t.Errorf("was read as\n%+v, %v, want\n%+v", got.Request, refused, want)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "image") // becomes the input
	if !reflect.DeepEqual(got.Fields, members) {
		t.Errorf("Fields has %s, want %s", slices.Sorted(maps.Keys(got.Fields)), slices.Sorted(maps.Keys(members)))
	}
}

func TestGenerationsRequireOnlyAModel(t *testing.T) {
	t.Parallel()
	if _, refused := decodeAndCheck(t, `{}`); !refusedAt(refused, fault.MissingParameter, "model") {
		t.Errorf("no model was answered %v", refused)
	}
	got, refused := decodeAndCheck(t, `{"model":"any"}`)
	if refused != nil || *got.Output.Count != 1 || got.Output.Duration != nil || got.Output.Resolution != "" || len(got.Inputs) > 0 {
		t.Errorf("a body with only a model: %+v, %v", got, refused)
	}
}

func TestGenerationsAreCheckedAgainstTheirFamily(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body       string
		param      string // empty: accepted
		words      string
		family     string
		duration   string
		resolution string
	}{
		"no family":                        {`{"model":"any","duration":99.5,"width":100,"height":50}`, "", "", "", "99.5", "50P"},
		"the defaults of the family":       {`{"model":"e-1"}`, "", "", "E", "8", "720P"},
		"a model name with its prefix":     {`{"model":"video-e-1"}`, "", "", "E", "8", "720P"},
		"an allowed duration":              {`{"model":"e-1","duration":12}`, "", "", "E", "12", "720P"},
		"a duration with a point":          {`{"model":"e-1","duration":4.0}`, "", "", "E", "4", "720P"},
		"another duration":                 {`{"model":"e-1","duration":5}`, "duration", "must be 4, 8 or 12 for family E, not 5", "", "", ""},
		"a part of a second":               {`{"model":"c-1","duration":5.5}`, "duration", "from 1 to 10 for family C, not 5.5", "", "", ""},
		"an allowed resolution":            {`{"model":"e-1","width":1280,"height":720}`, "", "", "E", "8", "720P"},
		"an allowed resolution, portrait":  {`{"model":"e-1","width":720,"height":1280}`, "", "", "E", "8", "720P"},
		"another resolution":               {`{"model":"e-1","width":1920,"height":1080}`, "height", "requests 1080P; allowed: 720P for family E", "", "", ""},
		"a resolution with a name":         {`{"model":"f-1","width":2560,"height":1440}`, "", "", "F", "5", "2K"},
		"another resolution with a name":   {`{"model":"f-1","width":2160,"height":3840}`, "", "", "F", "5", "4K"},
		"only a width":                     {`{"model":"e-1","width":1280}`, "width", "requires `height` too for family E", "", "", ""},
		"only a height":                    {`{"model":"e-1","height":2160}`, "height", "requires `width` too for family E", "", "", ""},
		"only a width, no family":          {`{"model":"any","width":1920}`, "", "", "", "", ""},
		"a very wide picture":              {`{"model":"e-1","width":16384,"height":720}`, "height", "requests 16384x720; allowed: 720P", "", "", ""},
		"a very high picture":              {`{"model":"f-1","width":1080,"height":4000}`, "height", "requests 1080x4000", "", "", ""},
		"a picture of 21:9":                {`{"model":"f-1","width":2560,"height":1080}`, "", "", "F", "5", "1080P"},
		"an allowed size":                  {`{"model":"e-1","size":"1280x720"}`, "", "", "E", "8", "720P"},
		"another size":                     {`{"model":"e-1","size":"3840x2160"}`, "size", "requests 4K; allowed: 720P", "", "", ""},
		"another resolution in metadata":   {`{"model":"e-1","metadata":{"parameters":{"resolution":"1080p"}}}`, "metadata.parameters.resolution", "requests 1080P", "", "", ""},
		"a size that has two names":        {`{"model":"f-1","metadata":{"resolution":"1440p"}}`, "", "", "F", "5", "2K"},
		"an unknown resolution":            {`{"model":"e-1","metadata":{"Resolution":"ultra"}}`, "metadata.Resolution", "a resolution such as 720P, for family E", "", "", ""},
		"a size in a list":                 {`{"model":"e-1","size":[3840,2160]}`, "size", "a size such as 1280x720", "", "", ""},
		"an unknown resolution, no family": {`{"model":"any","duration":2,"metadata":{"Resolution":"ultra"}}`, "", "", "", "2", ""},
		"an alias for the duration":        {`{"model":"e-1","seconds":"12"}`, "", "", "E", "12", "720P"},
	} {
		got, refused := decodeAndCheck(t, c.body)
		if c.param != "" {
			if !refusedAt(refused, fault.InvalidParameter, c.param, c.words) {
				t.Errorf("%s was answered %v, want a refusal at %s with %q", name, refused, c.param, c.words)
			}
			continue
		}
		duration := ""
		if got.Output.Duration != nil {
			duration = got.Output.Duration.String()
		}
		if refused != nil || got.Family != c.family || duration != c.duration || got.Output.Resolution != c.resolution {
			t.Errorf("%s: family %q, %s s, %s, %v", name, got.Family, duration, got.Output.Resolution, refused)
		}
	}
}

func TestNumbersOfGenerations(t *testing.T) {
	t.Parallel()
	for field, limit := range map[string]string{"width": "16384", "height": "16384", "fps": "1000", "n": "100"} {
		for value, passes := range map[string]bool{"1": true, limit: true, "0": false, "-1": false, limit + "1": false, "null": true} {
			_, refused := decodeAndCheck(t, `{"model":"any","`+field+`":`+value+`}`)
			if passes && refused != nil || !passes && !refusedAt(refused, fault.InvalidParameter, field, "must be from 1 to "+limit) {
				t.Errorf("%s %s was answered %v", field, value, refused)
			}
		}
	}
	for value, passes := range map[string]bool{
		"5": true, "1": true, "1.000001": true, "86400": true, "5e0": true, "0.5E1": true, "1e4": true,
		"0.999999": false, "1e-6": false, "0": false, "-1": false, "0.0000001": false, "5.0000001": false, "86400.000001": false, "1e400": false, "1e-400": false, `"5"`: false, "true": false,
		"5.000000000000000000000000000000000": false,
	} {
		_, refused := decodeAndCheck(t, `{"model":"any","duration":`+value+`}`)
		if passes && refused != nil || !passes && (refused == nil || refused.Param != "duration" || refused.Code != fault.InvalidParameter) {
			t.Errorf("a duration of %s was answered %v", value, refused)
		}
	}
	for _, body := range []string{`{"model":1}`, `{"prompt":[]}`, `{"width":"1"}`, `{"height":1.5}`, `{"fps":24.0}`, `{"seed":1.5}`, `{"n":"1"}`, `{"user":1}`, `{"response_format":{}}`, `{"metadata":[]}`, `{"image":{}}`} {
		_, refused := decodeAndCheck(t, body)
		if field := strings.Split(body, `"`)[1]; !refusedAt(refused, fault.InvalidParameter, field) {
			t.Errorf("%s was answered %v", body, refused)
		}
	}
}

func TestModelNamesOfGenerations(t *testing.T) {
	t.Parallel()
	for model, words := range map[string]string{
		"org/Model:v1 ü": "", strings.Repeat("m", 256): "",
		strings.Repeat("m", 257): "at most 256 bytes, not 257", "a\\u0000b": "control characters", "a\\u0085": "control characters",
	} {
		if _, refused := decodeAndCheck(t, `{"model":"`+model+`"}`); words == "" && refused != nil || words != "" && !refusedAt(refused, fault.InvalidParameter, "model", words) {
			t.Errorf("%.20s was answered %v", model, refused)
		}
	}
}

func TestTheImageOfGenerations(t *testing.T) {
	t.Parallel()
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG..."))
	for name, c := range map[string]struct{ image, words string }{
		"a URL":                        {anImage, ""},
		"Base64":                       {png, ""},
		"Base64 without padding":       {strings.TrimRight(png, "="), ""},
		"a data URL":                   {"data:image/png;base64," + png, ""},
		"a data URL in capitals":       {"DATA:Image/PNG;Base64," + png, ""},
		"a special address":            {"http://127.0.0.1/a.png", "special address"},
		"an ambiguous special address": {"http://0x7f.1/a.png", "different ways"},
		"a file":                       {"file:///etc/passwd", "absolute http or https"},
		"an address without slash":     {"http:127.0.0.1", "a URL, or an image in Base64"},
		"a relative address":           {"//files.example/a.png", "a URL, or an image in Base64"},
		"plain text":                   {"a boat", "a URL, or an image in Base64"},
		"another data URL":             {"data:text/html;base64," + png, "a data URL of an image"},
		"a data URL without Base64": {
			"data:image/svg+xml,<svg/>", "a data URL of an image",
		},
		"a data URL of a long type":      {"data:image/" + strings.Repeat("x", 200) + ";base64," + png, "a data URL of an image"},
		"an empty data URL":              {"data:image/png;base64,", "a URL, or an image in Base64"},
		"a data URL with invalid Base64": {"data:image/png;base64,%%%", "a URL, or an image in Base64"},
		"only padding":                   {"====", "a URL, or an image in Base64"},
	} {
		body, err := json.Marshal(object{"model": "any", "image": c.image})
		if err != nil {
			t.Fatal(err)
		}
		got, refused := decodeAndCheck(t, string(body))
		if c.words == "" && (refused != nil || got.Inputs[0].URL != c.image) || c.words != "" && !refusedAt(refused, fault.InvalidParameter, "image", c.words) {
			t.Errorf("%s was answered %+v, %v", name, got.Inputs, refused)
		}
	}
}

func TestPricedMembersAreUnambiguous(t *testing.T) {
	t.Parallel()
	for body, param := range map[string]string{
		`{"model":"e-1","model":"e-1"}`:                           "model",
		`{"model":"e-1","mod\u0065l":"e-1"}`:                      "model",
		`{"model":"e-1","Model":"b-1"}`:                           "model",
		`{"model":"e-1","DURATION":12}`:                           "duration",
		`{"model":"e-1","N":9}`:                                   "n",
		`{"model":"e-1","Seconds":"12"}`:                          "seconds",
		`{"model":"e-1","\u0057idth":1}`:                          "width",
		`{"model":"e-1","Height":1080}`:                           "height",
		`{"model":"e-1","metadata":{"a":1,"a":2}}`:                "metadata.a",
		`{"model":"e-1","duration":4,"seconds":"12"}`:             "seconds",
		`{"model":"e-1","seconds":"soon"}`:                        "seconds",
		`{"model":"e-1","seconds":[4]}`:                           "seconds",
		`{"model":"e-1","duration":4,"metadata":{"duration":12}}`: "metadata.duration",
		`{"model":"e-1","seconds":4,"metadata":{"seconds":12}}`:   "metadata.seconds",
		`{"model":"e-1","n":1,"metadata":{"n":4}}`:                "metadata.n",
		`{"model":"e-1","metadata":{"n":1.5}}`:                    "metadata.n",
		`{"model":"e-1","metadata":{"model":"b-1"}}`:              "metadata.model",
	} {
		if _, refused := decodeAndCheck(t, body); !refusedAt(refused, fault.InvalidParameter, param) {
			t.Errorf("%s was answered %v, want a refusal at %s", body, refused, param)
		}
	}
	for _, body := range []string{
		`{"model":"e-1","duration":4,"seconds":"4","metadata":{"duration":4.0,"seconds":"4","model":"e-1"}}`,
		`{"metadata":{"model":"e-1","duration":4,"n":2}}`,
		`{"model":"e-1","seconds":null,"Sample_Count":null}`,
		`{"model":"e-1","metadata":null}`,
	} {
		if _, refused := decodeAndCheck(t, body); refused != nil {
			t.Errorf("%s was answered %v", body, refused)
		}
	}
	got, _ := decodeAndCheck(t, `{"metadata":{"model":"e-1","duration":4,"n":2}}`)
	if got.Model != "e-1" || *got.Output.Duration != 4*catalog.Second || *got.Output.Count != 2 {
		t.Errorf("values that only metadata sets: %+v", got)
	}
}
