package generation_test

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/money"
)

// bySecond is a price with every kind of row per second.
var bySecond = catalog.Price{Model: "*", Second: []catalog.Variant{
	{Price: money.Unit / 10},
	{Audio: true, Price: money.Unit / 5},
	{Resolution: "1080P", Price: 3 * money.Unit / 10},
	{Resolution: "1080p", Audio: true, Price: money.Unit / 2},
}}

var byImage = catalog.Price{Model: "*", Request: money.Unit / 100, Image: []catalog.Variant{
	{Price: money.Unit / 20}, {Resolution: "4K", Price: money.Unit / 4},
}}

func TestTheHoldIncludesDefaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body           []byte
		decodeAndCheck string
		price          *catalog.Price
		hold           string
		rule           string
	}{
		"by default":                 {submission("video-e-1", nil), "", &bySecond, "0.80", "1 video × 8 s × 0.10 per second"},
		"with sound":                 {submission("video-e-1", object{"output.audio": true}), "", &bySecond, "1.60", "1 video × 8 s × 0.20 per second (with sound)"},
		"longer":                     {submission("video-e-1", object{"output.duration": 12}), "", &bySecond, "1.20", "1 video × 12 s × 0.10 per second"},
		"larger":                     {submission("video-c-1", object{"output.resolution": "1080p"}), "", &bySecond, "1.50", "1 video × 5 s × 0.30 per second (1080P)"},
		"larger, with sound":         {submission("video-c-1", object{"output.resolution": "1080p", "output.audio_generation": "enabled"}), "", &bySecond, "2.50", "1 video × 5 s × 0.50 per second (1080p, with sound)"},
		"a family without sound":     {submission("video-b-1", nil), "", &bySecond, "0.60", "1 video × 6 s × 0.10 per second"},
		"an image":                   {submission("image-a-1", nil), "", &byImage, "0.06", "1 image × 0.05 per image + 0.01 per request"},
		"images":                     {submission("image-a-1", object{"output.count": 3, "output.resolution": "4k"}), "", &byImage, "0.76", "3 images × 0.25 per image (4K) + 0.01 per request"},
		"a request":                  {submission("video-e-1", nil), "", &catalog.Price{Request: 5}, "0.000000005", "0.000000005 per request"},
		"passing, with defaults":     {nil, `{"model":"e-1"}`, &bySecond, "0.80", "1 video × 8 s × 0.10 per second"},
		"passing, several":           {nil, `{"model":"e-1","n":2,"duration":4}`, &bySecond, "0.80", "2 videos × 4 s × 0.10 per second"},
		"passing, by size":           {nil, `{"model":"c-1","width":1080,"height":1920}`, &bySecond, "1.50", "1 video × 5 s × 0.30 per second (1080P)"},
		"passing, harmless":          {nil, `{"model":"e-1","user":"u","metadata":{"style":"s","negative_prompt":"n"}}`, &bySecond, "0.80", "1 video × 8 s × 0.10 per second"},
		"passing, an unknown member": {nil, `{"model":"e-1","metadata":{"look":"high"}}`, &bySecond, "4.00", "1 video × 8 s × 0.50 per second (1080p, with sound)"},
		"passing, an opaque size":    {nil, `{"model":"e-1","size":"1280x720"}`, &bySecond, "4.00", "1 video × 8 s × 0.50 per second (1080p, with sound)"},
		"passing, no family":         {nil, `{"model":"any","duration":1.5,"width":1920,"height":1080}`, &bySecond, "0.75", "1 video × 1.5 s × 0.50 per second (1080p, with sound)"},
		"passing, nothing known":     {nil, `{"model":"any","duration":2}`, &bySecond, "1.00", "1 video × 2 s × 0.50 per second (1080p, with sound)"},
		"passing, one side":          {nil, `{"model":"any","duration":2,"height":720}`, &bySecond, "1.00", "1 video × 2 s × 0.50 per second (1080p, with sound)"},
		"passing, an unusual size":   {nil, `{"model":"any","duration":2,"width":3700,"height":2082}`, &bySecond, "1.00", "1 video × 2 s × 0.50 per second (1080p, with sound)"},
		"passing, a very wide size":  {nil, `{"model":"any","duration":2,"width":16384,"height":720}`, &bySecond, "1.00", "1 video × 2 s × 0.50 per second (1080p, with sound)"},
		"passing, a common size":     {nil, `{"model":"any","duration":2,"width":1280,"height":720}`, &bySecond, "0.40", "1 video × 2 s × 0.20 per second (with sound)"},
		"passing, a size of a row":   {nil, `{"model":"any","duration":2,"width":1066,"height":600}`, &withUnusualSize, "0.10", "1 video × 2 s × 0.05 per second (600p)"},
		"passing, frames":            {nil, `{"model":"e-1","duration":4,"fps":24,"num_frames":97}`, &bySecond, "0.40", "1 video × 4 s × 0.10 per second"},
		"passing, by aliases":        {nil, `{"model":"e-1","metadata":{"durationSeconds":"4","sample_count":2}}`, &bySecond, "0.80", "2 videos × 4 s × 0.10 per second"},
		"passing, by the request":    {nil, `{"model":"any"}`, &catalog.Price{Request: 5}, "0.000000005", "0.000000005 per request"},
	} {
		checked, refused := check(standard(t), c.body)
		if c.decodeAndCheck != "" {
			checked, refused = decodeAndCheck(t, c.decodeAndCheck)
		}
		if refused != nil {
			t.Errorf("%s: %v", name, refused)
			continue
		}
		quote, refused := checked.Quote(c.price)
		if refused != nil || quote.Hold.String() != c.hold || quote.Rule != c.rule {
			t.Errorf("%s: hold %v by the rule %q, %v, want %s by %q", name, quote.Hold, quote.Rule, refused, c.hold, c.rule)
		}
	}
}

func TestTasksWithoutAPriceAreRefused(t *testing.T) {
	t.Parallel()
	only1080 := catalog.Price{Second: []catalog.Variant{{Resolution: "1080P", Price: 1}, {Resolution: "720P", Audio: true, Price: 1}}}
	huge := catalog.Price{Second: []catalog.Variant{{Price: money.Max}}}
	for name, c := range map[string]struct {
		body, decodeAndCheck string
		price                *catalog.Price
		code                 fault.Code
		param                string
		words                string
	}{
		"no duration":                  {"", `{"model":"any"}`, &bySecond, fault.MissingParameter, "duration", "has a price per second"},
		"another resolution":           {"video-e-1", "", &only1080, fault.InvalidParameter, "output.resolution", "requests 720P, which has no price for this model; priced: 1080P or 720P with sound"},
		"another resolution, passing":  {"", `{"model":"e-1"}`, &only1080, fault.InvalidParameter, "height", "requests 720P"},
		"another resolution of images": {"image-a-1", "", &catalog.Price{Image: []catalog.Variant{{Resolution: "8K", Price: 1}}}, fault.InvalidParameter, "output.resolution", "requests 1K, which has no price for this model; priced: 8K"},
		"images for a video":           {"video-e-1", "", &byImageOnly, fault.ModelNotFound, "model", "no price for generations"},
		"seconds for an image":         {"image-a-1", "", &bySecond, fault.ModelNotFound, "model", "no price for generations"},
		"tokens for a video":           {"video-e-1", "", &catalog.Price{TokenPrices: catalog.TokenPrices{Input: new(money.Unit), Output: new(money.Unit)}}, fault.ModelNotFound, "model", "no price for generations"},
		"no price without sound":       {"video-e-1", "", &catalog.Price{Second: []catalog.Variant{{Audio: true, Price: 1}}}, fault.InvalidParameter, "output.resolution", "priced: any with sound"},
		"too much for an image":        {"image-a-9", "", &catalog.Price{Request: 1, Image: []catalog.Variant{{Price: money.Max}}}, fault.InvalidParameter, "output.count", "more than can be counted"},
		"too much":                     {"video-e-1", "", &huge, fault.InvalidParameter, "output.duration", "more than can be counted"},
		"too much, passing":            {"", `{"model":"any","duration":2,"n":100}`, &huge, fault.InvalidParameter, "duration", "more than can be counted"},
	} {
		var checked generation.Checked
		var refused *fault.Fault
		if c.decodeAndCheck != "" {
			checked, refused = decodeAndCheck(t, c.decodeAndCheck)
		} else {
			checked, refused = check(standard(t), submission(c.body, nil))
		}
		if refused != nil {
			t.Errorf("%s: %v", name, refused)
			continue
		}
		if _, refused = checked.Quote(c.price); !refusedAt(refused, c.code, c.param, c.words) {
			t.Errorf("%s was answered %v, want %s at %s with %q", name, refused, c.code, c.param, c.words)
		}
	}
}

// TestKnownAndHarmlessMembersKeepTheRate tests each member separately, at the
// top level and in metadata.
func TestKnownAndHarmlessMembersKeepTheRate(t *testing.T) {
	t.Parallel()
	for member, top := range map[string]bool{
		`"prompt":"p"`: true, `"image":"https://files.example/a.png"`: true, `"duration":8`: true, `"seconds":"8"`: true, `"fps":24`: true, `"seed":1`: true, `"n":1`: true,
		`"width":1280,"height":720`: true, `"response_format":"url"`: true, `"user":"u"`: true, `"negative_prompt":"n"`: true, `"style":"s"`: true, `"metadata":{}`: true,
		`"aspect_ratio":"9:16"`: true, `"session_id":"s"`: true, `"audio":false`: true, `"audio_generation":"disabled"`: true, `"generateAudio": false `: true,
		`"audio":"false"`: false, `"audio":null`: false, `"audio_url":false`: false,
		`"size":"1280x720"`: false, `"quality":"standard"`: true, `"quality":"720p"`: false, `"images":[]`: false, `"audio":true`: false, `"resolution":"720P"`: false, `"metadata ":{}`: false,
	} {
		bodies := map[string]bool{`{"model":"e-1",` + member + `}`: top}
		if !strings.Contains(member, "image\"") && !strings.Contains(member, "metadata") {
			bodies[`{"model":"e-1","metadata":{`+member+`}}`] = top
		}
		for body, known := range bodies {
			checked, refused := decodeAndCheck(t, body)
			if refused != nil {
				t.Errorf("%s: %v", body, refused)
				continue
			}
			want := "4.00" // the most expensive row
			if known {
				want = "0.80"
			}
			if quote, refused := checked.Quote(&bySecond); refused != nil || quote.Hold.String() != want {
				t.Errorf("%s holds %v, %v, want %s", body, quote.Hold, refused, want)
			}
		}
	}
}

func TestAPricePerSecondNeedsADuration(t *testing.T) {
	t.Parallel()
	families := standard(t, catalog.FamilyRow{Family: "E", Video: catalog.Override{Duration: &catalog.Numbers{Allowed: []catalog.Range{{Min: 1, Max: 9}}}}})
	checked, refused := check(families, submission("video-e-1", nil))
	if refused != nil || checked.Output.Duration != nil {
		t.Fatalf("the duration is %v, %v", checked.Output.Duration, refused)
	}
	if _, refused = checked.Quote(&bySecond); !refusedAt(refused, fault.MissingParameter, "output.duration", "has a price per second") {
		t.Errorf("a price per second: %v", refused)
	}
	if _, refused = checked.Quote(&catalog.Price{Request: 1}); refused != nil {
		t.Errorf("a price per request: %v", refused)
	}
}

var withUnusualSize = catalog.Price{Second: []catalog.Variant{{Price: money.Unit / 10}, {Resolution: "600p", Price: money.Unit / 20}}}

var byImageOnly = catalog.Price{Image: []catalog.Variant{{Price: 1}}}
