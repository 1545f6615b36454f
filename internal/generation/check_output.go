package generation

import (
	"cmp"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// duration checks the duration against the family, if there is one.
func (c *check) duration() *fault.Fault {
	if requested := c.Output.Duration; c.Passing() && requested != nil && *requested < catalog.Second {
		return invalid("duration", "must be at least 1 second, not %v", *requested)
	}
	if c.Kind != catalog.Video || c.family == nil {
		return nil
	}
	allowed := c.family.Duration
	if c.Output.Duration == nil {
		if allowed.Default > 0 {
			c.Output.Duration = new(catalog.Seconds(allowed.Default) * catalog.Second)
		}
		return nil
	}
	if n, whole := c.Output.Duration.Whole(); !whole || !allowed.Has(n) {
		return invalid(c.param("duration"), "must be %v for %s, not %v", allowed, c.models(), *c.Output.Duration)
	}
	return nil
}

// resolution checks the resolution and sets the spelling of the table.
func (c *check) resolution() *fault.Fault {
	switch {
	case c.family == nil:
		return nil
	case c.Output.Resolution == "":
		c.Output.Resolution = c.family.Resolution.Default
		return nil
	}
	word, ok := c.family.Resolution.Find(c.Output.Resolution)
	switch {
	case !ok && c.Passing():
		return invalid(c.sizeParam(), "requests %s; allowed: %v for %s", c.Output.Resolution, c.family.Resolution, c.models())
	case !ok:
		return c.notAllowed("output.resolution", c.Output.Resolution, c.family.Resolution.Allowed)
	}
	c.Output.Resolution = word
	return nil
}

// aspectRatio checks the ratio. For some families, a request with inputs has no
// default: the result then has the ratio of the inputs.
func (c *check) aspectRatio() *fault.Fault {
	allowed := c.family.AspectRatio
	if c.Output.AspectRatio == "" {
		if textOnly := len(c.Inputs) == 0 && len(c.Subjects) == 0; textOnly || !allowed.TextOnly {
			c.Output.AspectRatio = allowed.Default
		}
		return nil
	}
	word, ok := allowed.Find(c.Output.AspectRatio)
	if !ok {
		return c.notAllowed("output.aspect_ratio", c.Output.AspectRatio, allowed.Allowed)
	}
	c.Output.AspectRatio = word
	return nil
}

// audio sets audio_generation, which takes precedence over audio.
func (c *check) audio() *fault.Fault {
	requested, param := c.Output.AudioGeneration, "output.audio_generation"
	if requested == "" && c.Output.Audio != nil {
		requested, param = Disabled, "output.audio"
		if *c.Output.Audio {
			requested = Enabled
		}
	}
	c.Output.Audio = nil
	return c.feature(param, c.family.Audio, requested, Disabled, &c.Output.AudioGeneration)
}

func (c *check) frameInterpolate() *fault.Fault {
	return c.feature("output.frame_interpolate", c.family.FrameInterpolate, c.Output.FrameInterpolate, "", &c.Output.FrameInterpolate)
}

// feature sets a switch as requested, or to its default. If the family does not
// support it, it cannot be enabled and is removed.
func (c *check) feature(param string, supported bool, requested, byDefault Switch, into *Switch) *fault.Fault {
	switch {
	case !supported && requested == Enabled:
		return c.unsupported(param)
	case !supported:
		*into = ""
	case requested == "":
		*into = byDefault
	default:
		*into = requested
	}
	return nil
}

// count checks the number of images. A platform task creates one video.
func (c *check) count() *fault.Fault {
	if c.Kind != catalog.Image {
		return nil
	}
	allowed := c.family.Count
	if c.Output.Count == nil {
		c.Output.Count = new(max(allowed.Default, 1))
		return nil
	}
	if n := *c.Output.Count; !allowed.Has(n) {
		return invalid("output.count", "must be %v for %s, not %d", allowed, c.models(), n)
	}
	return nil
}

// numbers checks the numbers of /v1/video/generations.
func (c *check) numbers() *fault.Fault {
	c.Output.Count = cmp.Or(c.Output.Count, new(1))
	for _, number := range []struct {
		param string
		n     *int
		max   int
	}{
		{"width", c.Output.Width, maxSide},
		{"height", c.Output.Height, maxSide},
		{"fps", c.Output.FPS, maxFPS},
		{"n", c.Output.Count, maxVideos},
	} {
		if number.n != nil && (*number.n < 1 || *number.n > number.max) {
			return invalid(number.param, "must be from 1 to %d, not %d", number.max, *number.n)
		}
	}
	return nil
}

// sides checks that /v1/video/generations has both sides or none. If the model
// is in a family, each word for a size must be comparable.
func (c *check) sides() *fault.Fault {
	if c.family == nil {
		return nil
	}
	switch {
	case c.Output.Width == nil && c.Output.Height != nil:
		return invalid("height", "requires `width` too for %s", c.models())
	case c.Output.Width != nil && c.Output.Height == nil:
		return invalid("width", "requires `height` too for %s", c.models())
	}
	return c.readable(aliasesOf(c.Fields))
}

// sizeParam returns the member of /v1/video/generations that sets the size.
func (c *check) sizeParam() string {
	if _, given := c.Fields["height"]; !given {
		for _, a := range aliasesOf(c.Fields) {
			if of := a.quantity(); of.opaque || slices.Contains(of.names, "height") {
				return a.path
			}
		}
	}
	return "height"
}

// readable returns an error for an alias whose word for a size cannot be
// compared with the family.
func (c *check) readable(aliases []alias) *fault.Fault {
	for _, a := range aliases {
		if a.quantity().opaque && !a.readable() {
			return invalid(a.path, "must be a size such as 1280x720, or a resolution such as 720P, for %s", c.models())
		}
	}
	return nil
}

// pixels sets the resolution of /v1/video/generations by the number of pixels.
func (c *check) pixels() *fault.Fault {
	if c.Output.Width == nil || c.Output.Height == nil {
		return nil
	}
	c.Output.Resolution = catalog.NameSize(*c.Output.Width, *c.Output.Height)
	return nil
}
