package backends

import (
	"strconv"
	"strings"
)

// ShortEdges maps resolutions to their short edge in pixels.
var ShortEdges = map[string]int{
	"540P": 540, "720P": 720, "768P": 768, "1080P": 1080,
	"1K": 1024, "2K": 1440, "4K": 2160,
}

// Size returns the width and height in pixels: those of the output, or those of
// its resolution and ratio, with the defaults 720P and 16:9. Sizes from a
// resolution are even, which video encoders require.
func (o Output) Size() (width, height int) {
	if o.Width > 0 && o.Height > 0 {
		return o.Width, o.Height
	}
	short, known := ShortEdges[strings.ToUpper(o.Resolution)]
	if !known {
		short = ShortEdges["720P"]
	}
	w, h := ratio(o.AspectRatio)
	if w >= h {
		return even(short * w / h), short
	}
	return short, even(short * h / w)
}

// maxRatio is the largest number in an aspect ratio.
const maxRatio = 99

func ratio(text string) (w, h int) {
	left, right, _ := strings.Cut(text, ":")
	w, errW := strconv.Atoi(left)
	h, errH := strconv.Atoi(right)
	if errW != nil || errH != nil || w < 1 || h < 1 || w > maxRatio || h > maxRatio {
		return 16, 9
	}
	return w, h
}

func even(n int) int { return (n + 1) &^ 1 }
