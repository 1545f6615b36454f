package catalog

import (
	"fmt"
	"strings"
)

// resolutions are those that videos commonly have, by the pixels of their
// shorter side.
var resolutions = []struct {
	lines int
	name  string
}{
	{360, "360P"}, {480, "480P"}, {540, "540P"}, {720, "720P"}, {768, "768P"}, {1080, "1080P"}, {1440, "2K"}, {2160, "4K"},
}

// widest is the greatest aspect ratio of a common shape, in tenths: videos sold
// as 21:9 have up to 2.4:1.
const widest = 24

// tolerance is the allowed difference of a side, in percent.
const tolerance = 3

// ResolutionOf returns the name of a video's resolution, or false if its size
// is not a common one. The shorter side may differ by 3 %, because encoders
// require multiples of 16: 1080 lines are often 1088, and 720 are 704. A video
// that is longer than the common shapes of its resolution has more pixels than
// the name means, so it has no name.
func ResolutionOf(width, height int) (string, bool) {
	lines, longer := min(width, height), max(width, height)
	for _, r := range resolutions {
		if off := max(lines-r.lines, r.lines-lines); off <= r.lines*tolerance/100 {
			if longer > longest(r.lines) {
				return "", false
			}
			return r.name, true
		}
	}
	return "", false
}

// longest is the longer side of the widest common shape of so many lines.
func longest(lines int) int { return lines * widest * (100 + tolerance) / 1000 }

// NameSize names any size in pixels: by its resolution if that is a common one,
// else by the number of lines, such as 600P, and by both sides if it is longer
// than any common shape.
func NameSize(width, height int) string {
	if name, ok := ResolutionOf(width, height); ok {
		return name
	}
	lines := min(width, height)
	if max(width, height) > longest(lines) {
		return fmt.Sprintf("%dx%d", width, height)
	}
	return fmt.Sprintf("%dP", lines)
}

// CommonResolution reports whether [ResolutionOf] returns name, in any case.
func CommonResolution(name string) bool {
	for _, r := range resolutions {
		if strings.EqualFold(r.name, name) {
			return true
		}
	}
	return false
}
