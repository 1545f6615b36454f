package catalog

// resolutions are those that videos commonly have, by the pixels of their
// shorter side.
var resolutions = []struct {
	lines int
	name  string
}{
	{360, "360P"}, {480, "480P"}, {540, "540P"}, {720, "720P"}, {768, "768P"}, {1080, "1080P"}, {1440, "2K"}, {2160, "4K"},
}

// ResolutionOf names the resolution of a video of so many pixels, and returns
// false when it is not one of the common ones. Its shorter side may differ by
// three in a hundred: encoders want multiples of 16, so that 1080 lines are often
// 1088, and 720 are 704.
func ResolutionOf(width, height int) (string, bool) {
	const tolerance = 3 // in a hundred
	lines := min(width, height)
	for _, r := range resolutions {
		if off := max(lines-r.lines, r.lines-lines); off <= r.lines*tolerance/100 {
			return r.name, true
		}
	}
	return "", false
}
