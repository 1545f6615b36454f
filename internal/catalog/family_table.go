package catalog

// family is one row of the table in docs/guide/generation.md#families. The configuration can
// override every cell.
type family struct {
	name     string
	video    Rules
	image    Rules
	variants []VariantRow
}

// families is the table.
var families = []family{
	{
		name: "A",
		video: Rules{
			Duration:      seconds(5, 5, 10),
			Resolution:    words("720P", "720P", "1080P"),
			AspectRatio:   Choice{Allowed: []string{"16:9", "9:16", "1:1"}, Default: "16:9", TextOnly: true},
			SceneType:     []string{"motion_control", "avatar_i2v", "lip_sync"},
			ReferenceType: []ReferenceType{"video:feature", "video:base"},
			SubjectInputs: SubjectsByID,
			MaxInputs:     7,
		},
		image: images(words("1K", "1K", "2K", "4K"), fewRatios, 10, 9),
	},
	{
		name: "B",
		video: Rules{
			Duration:   seconds(6, 6, 10),
			Resolution: words("768P", "768P", "1080P"),
			MaxInputs:  3,
		},
		image: otherImages,
	},
	{
		name: "C",
		video: Rules{
			Duration:         Numbers{Allowed: []Range{{1, 10}}, Default: 5},
			Resolution:       words("720P", "720P", "1080P"),
			AspectRatio:      words("", "16:9", "9:16", "4:3", "3:4", "1:1"),
			Audio:            true,
			FrameInterpolate: true,
			SceneType:        []string{"template_effect"},
			SubjectInputs:    SubjectsByName,
			MaxInputs:        7,
		},
		image: images(words("1080P", "1080P", "2K", "4K"), fewRatios, 7, 1),
		variants: []VariantRow{{
			Models: "q2*",
			Video: Override{
				AspectRatio: &Choice{Allowed: []string{"4:3", "3:4"}},
				ObjectID:    new(true),
				VoiceID:     new(true),
			},
		}},
	},
	{
		name: "D",
		video: Rules{
			Duration:      seconds(8, 8),
			Resolution:    words("720P", "720P", "1080P"),
			AspectRatio:   words("16:9", "16:9", "9:16"),
			Audio:         true,
			ReferenceType: []ReferenceType{"asset", "style"},
			MaxInputs:     3,
		},
		image: otherImages,
	},
	{
		name: "E",
		video: Rules{
			Duration:    seconds(8, 4, 8, 12),
			Resolution:  words("720P", "720P"),
			AspectRatio: Choice{Allowed: []string{"16:9", "9:16"}, Default: "16:9", TextOnly: true},
			Audio:       true,
			MaxInputs:   3,
		},
		image: otherImages,
	},
	{
		name: "F",
		video: Rules{
			Duration:    Numbers{Allowed: []Range{{1, 15}}, Default: 5},
			Resolution:  words("720P", "540P", "720P", "1080P", "2K", "4K"),
			AspectRatio: words("", "16:9", "9:16", "4:3", "3:4", "1:1", "2:3", "3:2", "21:9"),
			Text:        true,
			MaxInputs:   7,
		},
		image: otherImages,
	},
}

// Aspect ratios of images of families A and C, and of the other families.
var (
	fewRatios  = []string{"16:9", "9:16", "1:1", "4:3", "3:4", "3:2", "2:3", "21:9"}
	manyRatios = append(fewRatios[:len(fewRatios):len(fewRatios)], "4:5", "5:4")
)

// otherImages are the image rules of families other than A and C.
var otherImages = images(words("1K", "1K", "2K", "4K"), manyRatios, 3, 1)

// images returns image rules. The parameters differ between families; all other rules are common.
func images(resolution Choice, ratios []string, maxInputs, maxCount int) Rules {
	return Rules{
		Resolution:    resolution,
		AspectRatio:   Choice{Allowed: ratios},
		ReferenceType: []ReferenceType{"mask"},
		Text:          true,
		MaxInputs:     maxInputs,
		Count:         Numbers{Allowed: []Range{{1, maxCount}}, Default: 1},
	}
}

func seconds(byDefault int, allowed ...int) Numbers {
	ns := Numbers{Default: byDefault}
	for _, n := range allowed {
		ns.Allowed = append(ns.Allowed, Range{n, n})
	}
	return ns
}

func words(byDefault string, allowed ...string) Choice {
	return Choice{Allowed: allowed, Default: byDefault}
}
