package catalog

import (
	"fmt"
	"strings"
)

// resolutions are the common resolutions of videos, by the pixels of the shorter side.
var resolutions = []struct {
	lines int
	name  string
}{
	{360, "360P"}, {480, "480P"}, {540, "540P"}, {720, "720P"}, {768, "768P"}, {1080, "1080P"}, {1440, "2K"}, {2160, "4K"},
}

// widest is the highest common aspect ratio, in tenths: videos that are called 21:9 have up to 2.4:1.
const widest = 24

// tolerance is the allowed difference of a side, in percent.
const tolerance = 3

// ResolutionOf returns the name of a video's resolution, or false if its size is not common. The
// shorter side may differ by 3 %, because encoders require multiples of 16: 1080 lines are often 1088,
// and 720 lines are 704. A video that is longer than widest has no name, because it has more pixels
// than the name means.
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

// longest returns the maximum of the longer side for this number of lines.
func longest(lines int) int { return lines * widest * (100 + tolerance) / 1000 }

// NameSize returns a name for any size in pixels: its resolution if it is common, else the number of
// lines, such as 600P. A size that is longer than widest is named by both sides.
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
