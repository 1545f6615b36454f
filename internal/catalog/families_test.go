package catalog_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func families(t *testing.T, rows ...catalog.FamilyRow) *catalog.Families {
	t.Helper()
	fs, err := catalog.NewFamilies(rows)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func in(family string, models ...catalog.Pattern) catalog.FamilyRow {
	return catalog.FamilyRow{Family: family, Models: models}
}

func TestTheLongestPatternSelectsTheFamily(t *testing.T) {
	t.Parallel()
	rows := []catalog.FamilyRow{
		in("A", "*"), in("B", "vidu-*"), in("C", "vidu-q*"), in("D", "vidu-q2"), in("E", "video-vidu-*"), in("F", "image-vidu-q2", "image-o*"),
	}
	for range 2 {
		fs := families(t, rows...)
		for model, want := range map[string]string{
			"video-x-1": "A", "video-vidu-1": "E", "image-vidu-1": "B", "video-vidu-q1": "C", "image-vidu-q1": "C",
			"video-vidu-q2": "D", "image-vidu-q2": "F", "video-vidu-q20": "C", "image-o-1": "F", "video-o-1": "A",
		} {
			kind := catalog.Kind(model[:5])
			got, refused := fs.Of(kind, model)
			if refused != nil || got.Name != want || got.Kind != kind {
				t.Errorf("%s has the family %q of kind %q, %v, want %s", model, got.Name, got.Kind, refused, want)
			}
			if bare, ok := fs.Find(kind, model[6:]); !ok || bare.Name != want {
				t.Errorf("%s without its kind has the family %q", model, bare.Name)
			}
		}
		slices.Reverse(rows)
	}
}

func TestAModelWithoutAFamilyIsNotFound(t *testing.T) {
	t.Parallel()
	fs := families(t, in("A", "kling-*", "video-only-1"), catalog.FamilyRow{Family: "B", Video: catalog.Override{Audio: new(true)}})
	for model, want := range map[string]fault.Code{
		"video-klin-1": fault.ModelNotFound, "video-Kling-1": fault.ModelNotFound, "image-only-1": fault.ModelNotFound, "video-only-12": fault.ModelNotFound,
		"kling-1": fault.InvalidModel, "video-kling": fault.InvalidModel,
	} {
		kind := catalog.Video
		if strings.HasPrefix(model, "image") {
			kind = catalog.Image
		}
		if got, refused := fs.Of(kind, model); refused == nil || refused.Code != want || refused.Param != "model" {
			t.Errorf("%s has the family %q, %v, want %s", model, got.Name, refused, want)
		}
	}
	if got, ok := fs.Find(catalog.Image, "only-1"); ok {
		t.Errorf("a model of another kind has the family %s", got.Name)
	}
	if _, ok := families(t).Find(catalog.Video, "video-a-1"); ok {
		t.Error("without rows, a model has a family")
	}
}

func TestNamesOfFamiliesAreExactNames(t *testing.T) {
	t.Parallel()
	fs := families(t, in("A", "z-1", "b-*"), in("B", "video-a-1", "image-c-1"))
	if got := fs.Names(); !slices.Equal(got, []string{"video-z-1", "image-z-1", "video-a-1", "image-c-1"}) || fs.Len() != 4 {
		t.Errorf("the %d patterns have the names %q", fs.Len(), got)
	}
}

// TestEveryCellCanBeOverridden overrides each cell separately and checks that
// all others are unchanged.
func TestEveryCellCanBeOverridden(t *testing.T) {
	t.Parallel()
	numbers := catalog.Numbers{Allowed: []catalog.Range{{Min: 3, Max: 4}}, Default: 4}
	choice := catalog.Choice{Allowed: []string{"8K"}}
	ratio := catalog.Choice{Allowed: []string{"2:1"}, Default: "2:1", TextOnly: true}
	for cell, c := range map[string]struct {
		override catalog.Override
		want     any
	}{
		"Duration":         {catalog.Override{Duration: &numbers}, numbers},
		"Resolution":       {catalog.Override{Resolution: &choice}, choice},
		"AspectRatio":      {catalog.Override{AspectRatio: &ratio}, ratio},
		"Audio":            {catalog.Override{Audio: new(true)}, true},
		"FrameInterpolate": {catalog.Override{FrameInterpolate: new(true)}, true},
		"SceneType":        {catalog.Override{SceneType: []string{"x"}}, []string{"x"}},
		"ReferenceType":    {catalog.Override{ReferenceType: []catalog.ReferenceType{}}, []catalog.ReferenceType{}},
		"SubjectInputs":    {catalog.Override{SubjectInputs: new(catalog.NoSubjects)}, catalog.NoSubjects},
		"ObjectID":         {catalog.Override{ObjectID: new(true)}, true},
		"VoiceID":          {catalog.Override{VoiceID: new(true)}, true},
		"Text":             {catalog.Override{Text: new(true)}, true},
		"MaxInputs":        {catalog.Override{MaxInputs: new(0)}, 0},
		"LastFrameAlone":   {catalog.Override{LastFrameAlone: new(true)}, true},
		"Count":            {catalog.Override{Count: &numbers}, numbers},
	} {
		kind, plain := catalog.Video, in("A", "a-*")
		if cell == "Count" {
			kind = catalog.Image
		}
		before, _ := families(t, plain).Find(kind, "a-1")
		for place, rows := range map[string][]catalog.FamilyRow{
			"for its models":              {with(plain, kind, c.override)},
			"for the family":              {plain, with(in("A"), kind, c.override)},
			"for a variant":               {{Family: "A", Models: plain.Models, Variants: []catalog.VariantRow{variant("1", kind, c.override)}}},
			"for a variant of the family": {plain, {Family: "A", Variants: []catalog.VariantRow{variant("1*", kind, c.override)}}},
		} {
			after, _ := families(t, rows...).Find(kind, "a-1")
			oldRules, newRules := reflect.ValueOf(before.Rules), reflect.ValueOf(after.Rules)
			for i := range oldRules.NumField() {
				name, want := oldRules.Type().Field(i).Name, oldRules.Field(i).Interface()
				if name == cell {
					if reflect.DeepEqual(want, c.want) {
						t.Errorf("%s has the overriding value before it is overridden", cell)
					}
					want = c.want
				}
				if got := newRules.Field(i).Interface(); !reflect.DeepEqual(got, want) {
					t.Errorf("after overriding %s %s, %s is %v, want %v", cell, place, name, got, want)
				}
			}
			other := catalog.Image
			if kind == catalog.Image {
				other = catalog.Video
			}
			own, _ := families(t, plain).Find(other, "a-1")
			if got, _ := families(t, rows...).Find(other, "a-1"); !reflect.DeepEqual(got, own) {
				t.Errorf("overriding %s %s changes the kind %s", cell, place, other)
			}
		}
	}
}

func with(row catalog.FamilyRow, kind catalog.Kind, o catalog.Override) catalog.FamilyRow {
	if kind == catalog.Image {
		row.Image = o
	} else {
		row.Video = o
	}
	return row
}

func variant(models catalog.Pattern, kind catalog.Kind, o catalog.Override) catalog.VariantRow {
	if kind == catalog.Image {
		return catalog.VariantRow{Models: models, Image: o}
	}
	return catalog.VariantRow{Models: models, Video: o}
}

func inputs(n int) catalog.Override { return catalog.Override{MaxInputs: &n} }

func TestTheMostSpecificOverrideApplies(t *testing.T) {
	t.Parallel()
	fs := families(
		t,
		catalog.FamilyRow{Family: "C", Video: inputs(11), Variants: []catalog.VariantRow{variant("x*", catalog.Video, inputs(12)), variant("xy", catalog.Video, inputs(13))}},
		catalog.FamilyRow{Family: "C", Models: []catalog.Pattern{"own-*"}, Video: inputs(21), Variants: []catalog.VariantRow{variant("x*", catalog.Video, inputs(22))}},
		in("C", "wide-*"), in("A", "other-*"),
	)
	for model, want := range map[string]int{
		"wide-1": 11, "wide-x1": 12, "wide-xy": 13, "wide-1-xy": 13, "wide-1x": 11,
		"own-1": 21, "own-x1": 22, "own-xy": 22, "other-x1": 7,
	} {
		if got, ok := fs.Find(catalog.Video, model); !ok || got.MaxInputs != want {
			t.Errorf("%s allows %d inputs, %v, want %d", model, got.MaxInputs, ok, want)
		}
	}
}

func TestAVariantAppliesToAllItsNames(t *testing.T) {
	t.Parallel()
	narrow := []string{"4:3", "3:4"}
	fs := families(t, catalog.FamilyRow{
		Family: "C", Models: []catalog.Pattern{"*"},
		Video: catalog.Override{AspectRatio: &catalog.Choice{Allowed: []string{"16:9"}}},
	})
	for model, q2 := range map[string]bool{
		"video-vidu-q2": true, "video-vidu-q2-pro": true, "video-vidu-q2.5": true, "video-a-b-q2": true, "video-q2-1": true, "q2-turbo": true,
		"video-vidu-q1": false, "video-vidu-xq2": false, "video-vidu-Q2": false, "video-vidu-2": false,
	} {
		got, _ := fs.Find(catalog.Video, model)
		if slices.Equal(got.AspectRatio.Allowed, narrow) != q2 || got.ObjectID != q2 || got.VoiceID != q2 {
			t.Errorf("%s allows the ratios %v, object_id %v and voice_id %v", model, got.AspectRatio, got.ObjectID, got.VoiceID)
		}
	}
	own := families(t, catalog.FamilyRow{Family: "C", Models: []catalog.Pattern{"*"}, Variants: []catalog.VariantRow{
		variant("q2*", catalog.Video, catalog.Override{AspectRatio: &catalog.Choice{Allowed: []string{"1:1"}}}),
	}})
	if got, _ := own.Find(catalog.Video, "vidu-q2"); !slices.Equal(got.AspectRatio.Allowed, []string{"1:1"}) || !got.ObjectID {
		t.Errorf("with another variant of the same models, the ratios are %v and object_id %v", got.AspectRatio, got.ObjectID)
	}
}

func TestAnInvalidFamilyRowIsRefused(t *testing.T) {
	t.Parallel()
	video := func(o catalog.Override) catalog.FamilyRow { return with(in("A", "a-*"), catalog.Video, o) }
	ranges := func(byDefault int, rs ...catalog.Range) *catalog.Numbers {
		return &catalog.Numbers{Allowed: rs, Default: byDefault}
	}
	choice := func(byDefault string, words ...string) *catalog.Choice {
		return &catalog.Choice{Allowed: words, Default: byDefault}
	}
	for name, c := range map[string]struct {
		rows []catalog.FamilyRow
		want string
	}{
		"an unknown family":           {[]catalog.FamilyRow{in("G", "a-*")}, `family "G": the families are A, B, C, D, E or F`},
		"a family in lower case":      {[]catalog.FamilyRow{in("a", "a-*")}, `family "a"`},
		"no family":                   {[]catalog.FamilyRow{in("", "a-*")}, `family ""`},
		"no models and no change":     {[]catalog.FamilyRow{in("A")}, "names no models and changes nothing"},
		"a bad pattern":               {[]catalog.FamilyRow{in("A", "a*b")}, "only at the end"},
		"an empty pattern":            {[]catalog.FamilyRow{in("A", "")}, "1 to 256"},
		"models twice":                {[]catalog.FamilyRow{in("A", "a-*"), in("B", "b-*", "a-*")}, "family B: models a-* are in a family already"},
		"models twice in a row":       {[]catalog.FamilyRow{in("A", "video-a-*", "video-a-*")}, "models video-a-* are in a family already"},
		"a family changed twice":      {[]catalog.FamilyRow{with(in("A"), catalog.Video, inputs(1)), with(in("A"), catalog.Image, inputs(2))}, "family A is changed twice"},
		"a duration of an image":      {[]catalog.FamilyRow{with(in("A"), catalog.Image, catalog.Override{Duration: ranges(0, catalog.Range{Min: 1, Max: 2})})}, "image duration: it is for the kind video"},
		"audio of an image":           {[]catalog.FamilyRow{with(in("A"), catalog.Image, catalog.Override{Audio: new(false)})}, "image audio: it is for the kind video"},
		"a count of videos":           {[]catalog.FamilyRow{video(catalog.Override{Count: ranges(0, catalog.Range{Min: 1, Max: 2})})}, "video count: it is for the kind image"},
		"no duration":                 {[]catalog.FamilyRow{video(catalog.Override{Duration: ranges(0)})}, "duration: it allows no number"},
		"a duration of zero":          {[]catalog.FamilyRow{video(catalog.Override{Duration: ranges(0, catalog.Range{Min: 0, Max: 5})})}, "0-5 does not lie within 1-86400"},
		"a reversed duration":         {[]catalog.FamilyRow{video(catalog.Override{Duration: ranges(0, catalog.Range{Min: 5, Max: 4})})}, "5-4 does not lie"},
		"a duration above a day":      {[]catalog.FamilyRow{video(catalog.Override{Duration: ranges(0, catalog.Range{Min: 5, Max: 86401})})}, "5-86401 does not lie"},
		"another default":             {[]catalog.FamilyRow{video(catalog.Override{Duration: ranges(6, catalog.Range{Min: 5, Max: 5}, catalog.Range{Min: 7, Max: 9})})}, "the default 6 is not allowed: it must be 5 or from 7 to 9"},
		"no resolution":               {[]catalog.FamilyRow{video(catalog.Override{Resolution: choice("")})}, "resolution: it allows no resolution"},
		"an invalid resolution":       {[]catalog.FamilyRow{video(catalog.Override{Resolution: choice("", "very large")})}, "is not a resolution"},
		"a resolution twice":          {[]catalog.FamilyRow{video(catalog.Override{Resolution: choice("", "4K", "4k")})}, `"4k" is given twice`},
		"another resolution":          {[]catalog.FamilyRow{video(catalog.Override{Resolution: choice("2K", "4K")})}, `the default "2K" is not allowed: it must be 4K`},
		"a default in lower case":     {[]catalog.FamilyRow{video(catalog.Override{Resolution: choice("4k", "4K")})}, `the default "4k" is not allowed`},
		"a ratio of one number":       {[]catalog.FamilyRow{video(catalog.Override{AspectRatio: choice("", "16")})}, "is not an aspect ratio"},
		"a ratio of zero":             {[]catalog.FamilyRow{video(catalog.Override{AspectRatio: choice("", "16:0")})}, "is not an aspect ratio"},
		"a ratio of letters":          {[]catalog.FamilyRow{video(catalog.Override{AspectRatio: choice("", "a:b")})}, "is not an aspect ratio"},
		"a default only for text":     {[]catalog.FamilyRow{video(catalog.Override{AspectRatio: &catalog.Choice{Allowed: []string{"1:1"}, TextOnly: true}})}, "text_only needs a default"},
		"a scene with a space":        {[]catalog.FamilyRow{video(catalog.Override{SceneType: []string{"a b"}})}, "must consist of letters"},
		"a scene twice":               {[]catalog.FamilyRow{video(catalog.Override{SceneType: []string{"a", "A"}})}, "is given twice"},
		"a reference of audio":        {[]catalog.FamilyRow{video(catalog.Override{ReferenceType: []catalog.ReferenceType{"audio:a"}})}, "is image or video"},
		"an empty category":           {[]catalog.FamilyRow{video(catalog.Override{ReferenceType: []catalog.ReferenceType{":a"}})}, "is image or video"},
		"an empty reference":          {[]catalog.FamilyRow{video(catalog.Override{ReferenceType: []catalog.ReferenceType{"video:"}})}, "must consist of letters"},
		"subjects by another field":   {[]catalog.FamilyRow{video(catalog.Override{SubjectInputs: new(catalog.Subjects("url"))})}, "allowed: none, id, name"},
		"a negative number of inputs": {[]catalog.FamilyRow{video(inputs(-1))}, "-1 must be from 0 to 1000"},
		"too many inputs":             {[]catalog.FamilyRow{video(inputs(1001))}, "1001 must be from 0 to 1000"},
		"too many images":             {[]catalog.FamilyRow{with(in("A"), catalog.Image, catalog.Override{Count: ranges(1, catalog.Range{Min: 1, Max: 101})})}, "1-101 does not lie within 1-100"},
		"a variant without models":    {[]catalog.FamilyRow{{Family: "A", Variants: []catalog.VariantRow{variant("", catalog.Video, inputs(1))}}}, "1 to 256"},
		"a variant without changes":   {[]catalog.FamilyRow{{Family: "A", Variants: []catalog.VariantRow{{Models: "q2*"}}}}, "variant q2*: it changes nothing"},
		"a variant twice":             {[]catalog.FamilyRow{{Family: "A", Variants: []catalog.VariantRow{variant("q*", catalog.Video, inputs(1)), variant("q*", catalog.Image, inputs(1))}}}, "variant q* is given twice"},
		"an invalid variant":          {[]catalog.FamilyRow{{Family: "A", Variants: []catalog.VariantRow{variant("q*", catalog.Image, catalog.Override{VoiceID: new(true)})}}}, "variant q*: image voice_id: it is for the kind video"},
	} {
		if _, err := catalog.NewFamilies(c.rows); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
	}
}

func TestFamilyRowsRoundTripAsJSON(t *testing.T) {
	t.Parallel()
	want := catalog.FamilyRow{
		Family: "C", Models: []catalog.Pattern{"vidu-*"},
		Video: catalog.Override{
			Duration:  &catalog.Numbers{Allowed: []catalog.Range{{Min: 1, Max: 10}, {Min: 12, Max: 12}}, Default: 5},
			MaxInputs: new(7), Audio: new(false), SceneType: []string{},
		},
		Variants: []catalog.VariantRow{variant("q2*", catalog.Video, catalog.Override{AspectRatio: &catalog.Choice{Allowed: []string{"4:3", "3:4"}}})},
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	const wantJSON = `{"family":"C","models":["vidu-*"],"video":{"duration":{"allowed":["1-10","12"],"default":5},"audio":false,"scene_type":[],"max_inputs":7},` +
		`"variants":[{"models":"q2*","video":{"aspect_ratio":{"allowed":["4:3","3:4"]}}}]}`
	if string(text) != wantJSON {
		t.Errorf("the JSON is\n%s, want\n%s", text, wantJSON)
	}
	var got catalog.FamilyRow
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the decoded row is %+v, %v", got, err)
	}
	for _, text := range []string{"", "-", "1-", "-5", "a", "1-a", "1 - 2", "+5", "1-2-3", "99999999999999999999"} {
		var r catalog.Range
		if r.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q was accepted as %+v", text, r)
		}
	}
}

func TestListsAsText(t *testing.T) {
	t.Parallel()
	for want, words := range map[string][]string{"nothing": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := catalog.Either(words); got != want {
			t.Errorf("Either(%q) is %q, want %q", words, got, want)
		}
	}
}
