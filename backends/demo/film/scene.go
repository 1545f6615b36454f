package film

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"image"
	"image/color"
	"io"
	"math"
)

// Rate is the number of pictures per second.
const Rate = 12

// Limits: an edge in pixels, and the length in seconds.
const (
	MinEdge   = 32
	MaxEdge   = 4096
	MaxLength = 60
)

// tiles is the edge of the emblem in tiles. Its right half mirrors the left.
const tiles = 7

// radius is the radius of the ball in pixels. It is the same for all pictures,
// because the moving part determines the size of a file.
const radius = 28

// Scene is the content of a picture: a gradient of two colours, an emblem of
// tiles, and in a film a ball in front. It depends only on the seed, so the
// same prompt always gives the same picture.
type Scene struct {
	width, height       int
	from, to, ink, ball color.RGBA
	emblem              [tiles][tiles]bool
	phase               float64
}

// NewScene returns the scene of a seed. Width and height are changed to the
// nearest valid even numbers.
func NewScene(seed []byte, width, height int) *Scene {
	hash := sha256.Sum256(seed)
	s := &Scene{width: edge(width), height: edge(height)}
	hue := float64(binary.BigEndian.Uint16(hash[:])) / (1 << 16)
	s.from, s.to = hsv(hue, 0.65, 0.45), hsv(hue+0.12, 0.55, 0.9)
	s.ink, s.ball = hsv(hue+0.5, 0.25, 0.98), hsv(hue+0.42, 0.8, 0.95)
	s.phase = float64(hash[2]) / 256
	for y := range tiles {
		for x := range (tiles + 1) / 2 {
			on := hash[3+x]>>y&1 == 1
			s.emblem[y][x], s.emblem[y][tiles-1-x] = on, on
		}
	}
	return s
}

func edge(n int) int { return (min(max(n, MinEdge), MaxEdge) + 1) &^ 1 }

// Size returns width and height in pixels.
func (s *Scene) Size() (width, height int) { return s.width, s.height }

// still returns the colour of a point without the ball.
func (s *Scene) still(x, y int) color.RGBA {
	side := min(s.width, s.height) / 2
	tile := max(side/tiles, 1)
	left, top := (s.width-tile*tiles)/2, (s.height-tile*tiles)/2
	if x >= left && y >= top && x < left+tile*tiles && y < top+tile*tiles && s.emblem[(y-top)/tile][(x-left)/tile] {
		return s.ink
	}
	share := (x*256/s.width + y*256/s.height) / 2
	mix := func(a, b uint8) uint8 { return uint8((int(a)*(255-share) + int(b)*share) / 255) }
	return color.RGBA{mix(s.from.R, s.to.R), mix(s.from.G, s.to.G), mix(s.from.B, s.to.B), 255}
}

// ballAt returns the centre of the ball at a time between 0 and 1. At 1 it is
// the same as at 0, so the film can be repeated.
func (s *Scene) ballAt(moment float64) image.Point {
	angle := 2 * math.Pi * (moment + s.phase)
	reach := func(size int) float64 { return max(0, float64(size)/2-radius-4) }
	return image.Pt(
		s.width/2+int(reach(s.width)*math.Cos(angle)),
		s.height/2+int(reach(s.height)*math.Sin(2*angle)),
	)
}

// Image is the scene without the ball. It implements image.Image.
type Image struct{ *Scene }

// ColorModel implements image.Image.
func (Image) ColorModel() color.Model { return color.RGBAModel }

// Bounds implements image.Image.
func (i Image) Bounds() image.Rectangle { return image.Rect(0, 0, i.width, i.height) }

// At implements image.Image.
func (i Image) At(x, y int) color.Color { return i.still(x, y) }

// Opaque returns true, so that encoders omit transparency.
func (Image) Opaque() bool { return true }

// draw draws macroblock n of p with the ball at a point.
func (s *Scene) draw(p *picture, n int, ball image.Point) {
	left, top := n%p.wide*macroblock, n/p.wide*macroblock
	var blue, red [64]int
	for i := range 256 {
		x, y := min(left+i%16, s.width-1), min(top+i/16, s.height-1)
		c := s.still(x, y)
		if dx, dy := x-ball.X, y-ball.Y; dx*dx+dy*dy <= radius*radius {
			c = s.ball
		}
		r, g, b := int(c.R), int(c.G), int(c.B)
		// ITU-R BT.601 with video range, in steps of 1/256.
		p.y[n*256+i] = uint8(16 + (66*r+129*g+25*b+128)>>8)
		at := i/32*8 + i%16/2
		blue[at] += 112*b - 38*r - 74*g
		red[at] += 112*r - 94*g - 18*b
	}
	for i := range 64 {
		p.cb[n*64+i] = uint8(128 + (blue[i]/4+128)>>8)
		p.cr[n*64+i] = uint8(128 + (red[i]/4+128)>>8)
	}
}

// covered returns the numbers of the macroblocks that the ball covers at one of
// the points, in ascending order.
func (p *picture) covered(points ...image.Point) []int {
	var list []int
	for n := range p.wide * p.high {
		at := image.Rect(0, 0, macroblock, macroblock).Add(image.Pt(n%p.wide, n/p.wide).Mul(macroblock))
		for _, point := range points {
			if at.Overlaps(image.Rect(-radius, -radius, radius+1, radius+1).Add(point)) {
				list = append(list, n)
				break
			}
		}
	}
	return list
}

// Film returns the scene as an MP4 file of this length in seconds. The length is
// at least one picture and at most [MaxLength].
func (s *Scene) Film(length float64) io.Reader {
	frames := int(math.Round(min(max(length, 0), MaxLength) * Rate))
	frames = max(frames, 1)
	p := newPicture(s.width, s.height)
	ball := s.ballAt(0)
	for n := range p.wide * p.high {
		s.draw(p, n, ball)
	}
	units := make([][]byte, 0, frames)
	units = append(units, firstPicture(p))
	for number := 1; number < frames; number++ {
		next := s.ballAt(float64(number) / float64(frames))
		list := p.covered(ball, next)
		for _, n := range list {
			s.draw(p, n, next)
		}
		ball = next
		units = append(units, laterPicture(p, number, list))
	}
	t := track{width: s.width, height: s.height, rate: Rate, sps: sps(p, s.width, s.height), pps: pps()}
	for _, unit := range units {
		t.sizes = append(t.sizes, lengthBytes+len(unit))
	}
	parts := make([]io.Reader, 0, 1+2*frames)
	parts = append(parts, bytes.NewReader(t.head()))
	for _, unit := range units {
		parts = append(parts, bytes.NewReader(u32(len(unit))), bytes.NewReader(unit))
	}
	return io.MultiReader(parts...)
}

// hsv returns the colour of a hue, a saturation and a brightness. The hue has
// period 1, the other two are from 0 to 1.
func hsv(hue, saturation, brightness float64) color.RGBA {
	channel := func(n float64) uint8 {
		k := math.Mod(n+6*hue, 6)
		return uint8(255 * brightness * (1 - saturation*max(0, min(k, 4-k, 1))))
	}
	return color.RGBA{channel(5), channel(3), channel(1), 255}
}
