package caddymodule

import (
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// unmarshalFamily reads one row of families:
//
//	family <label> [<model>...] {
//		video {
//			<cell>
//		}
//		image {
//			<cell>
//		}
//		variant <model> {
//			video { ... }
//			image { ... }
//		}
//	}
//
// Without models it changes the family itself.
func (a *App) unmarshalFamily(d *caddyfile.Dispenser) error {
	at := *d
	if !d.NextArg() {
		return d.ArgErr()
	}
	row := catalog.FamilyRow{Family: d.Val()}
	patterns, err := catalog.ParsePatterns(d.RemainingArgs())
	if err != nil {
		return d.WrapErr(err)
	}
	row.Models = patterns
	words := overrides(&row.Video, &row.Image)
	words["variant"] = func(d *caddyfile.Dispenser) error {
		var v catalog.VariantRow
		if err := modelPattern(d, &v.Models); err != nil {
			return err
		}
		row.Variants = append(row.Variants, v)
		last := &row.Variants[len(row.Variants)-1]
		return Block(d, overrides(&last.Video, &last.Image))
	}
	if err := Block(d, words, "variant"); err != nil {
		return err
	}
	if err := row.Validate(); err != nil {
		return at.WrapErr(err)
	}
	a.FamilyRows = append(a.FamilyRows, row)
	_, err = catalog.NewFamilies(a.FamilyRows)
	return located(&at, err)
}

// overrides are the words for what models take otherwise than their family.
func overrides(video, image *catalog.Override) map[string]func(*caddyfile.Dispenser) error {
	return map[string]func(*caddyfile.Dispenser) error{
		"video": func(d *caddyfile.Dispenser) error { return override(d, video) },
		"image": func(d *caddyfile.Dispenser) error { return override(d, image) },
	}
}

// override reads the cells that models take otherwise:
//
//	duration   <seconds>|<from>-<to>... {
//		default <seconds>
//	}
//	resolution <resolution>... {
//		default <resolution>
//		text_only
//	}
//	aspect_ratio <ratio>...|off {
//		default <ratio>
//		text_only
//	}
//	count <images>|<from>-<to>... {
//		default <images>
//	}
//	scene_type        <word>...|off
//	reference_type    <word>|<category>:<word>...|off
//	subject_inputs    none|id|name
//	audio             on|off
//	frame_interpolate on|off
//	object_id         on|off
//	voice_id          on|off
//	text              on|off
//	last_frame_alone  on|off
//	max_inputs        <count>
func override(d *caddyfile.Dispenser, o *catalog.Override) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return Block(d, map[string]func(*caddyfile.Dispenser) error{
		"duration":       func(d *caddyfile.Dispenser) error { return numbers(d, &o.Duration) },
		"count":          func(d *caddyfile.Dispenser) error { return numbers(d, &o.Count) },
		"resolution":     func(d *caddyfile.Dispenser) error { return choice(d, &o.Resolution) },
		"aspect_ratio":   func(d *caddyfile.Dispenser) error { return choice(d, &o.AspectRatio) },
		"scene_type":     func(d *caddyfile.Dispenser) error { return wordsOrOff(d, &o.SceneType) },
		"reference_type": func(d *caddyfile.Dispenser) error { return wordsOrOff(d, &o.ReferenceType) },
		"subject_inputs": func(d *caddyfile.Dispenser) error {
			var word string
			err := oneArg(d, &word)
			o.SubjectInputs = new(catalog.Subjects(word))
			return err
		},
		"audio":             func(d *caddyfile.Dispenser) error { return onOrOff(d, &o.Audio) },
		"frame_interpolate": func(d *caddyfile.Dispenser) error { return onOrOff(d, &o.FrameInterpolate) },
		"object_id":         func(d *caddyfile.Dispenser) error { return onOrOff(d, &o.ObjectID) },
		"voice_id":          func(d *caddyfile.Dispenser) error { return onOrOff(d, &o.VoiceID) },
		"text":              func(d *caddyfile.Dispenser) error { return onOrOff(d, &o.Text) },
		"last_frame_alone":  func(d *caddyfile.Dispenser) error { return onOrOff(d, &o.LastFrameAlone) },
		"max_inputs":        func(d *caddyfile.Dispenser) error { return optionalNumber(d, &o.MaxInputs) },
	})
}

// numbers reads the allowed numbers, and in a block the default one.
func numbers(d *caddyfile.Dispenser, into **catalog.Numbers) error {
	ns := new(catalog.Numbers)
	for _, word := range d.RemainingArgs() {
		var r catalog.Range
		if err := r.UnmarshalText([]byte(word)); err != nil {
			return d.WrapErr(err)
		}
		ns.Allowed = append(ns.Allowed, r)
	}
	if len(ns.Allowed) == 0 {
		return d.ArgErr()
	}
	*into = ns
	return Block(d, map[string]func(*caddyfile.Dispenser) error{
		"default": func(d *caddyfile.Dispenser) error {
			var n *int
			if err := optionalNumber(d, &n); err != nil {
				return err
			}
			ns.Default = *n
			return nil
		},
	})
}

// choice reads the allowed words, and in a block the default one.
func choice(d *caddyfile.Dispenser, into **catalog.Choice) error {
	c := new(catalog.Choice)
	if err := wordsOrOff(d, &c.Allowed); err != nil {
		return err
	}
	*into = c
	return Block(d, map[string]func(*caddyfile.Dispenser) error{
		"default": func(d *caddyfile.Dispenser) error { return oneArg(d, &c.Default) },
		"text_only": func(d *caddyfile.Dispenser) error {
			c.TextOnly = true
			return noArgs(d)
		},
	})
}

// wordsOrOff reads the words that are allowed; off allows none.
func wordsOrOff[T ~string](d *caddyfile.Dispenser, into *[]T) error {
	words := d.RemainingArgs()
	switch {
	case len(words) == 0:
		return d.ArgErr()
	case len(words) == 1 && words[0] == "off":
		words = nil
	}
	*into = make([]T, len(words))
	for i, word := range words {
		(*into)[i] = T(word)
	}
	return nil
}

func onOrOff(d *caddyfile.Dispenser, into **bool) error {
	var word string
	if err := oneArg(d, &word); err != nil {
		return err
	}
	if word != "on" && word != "off" {
		return d.Errf("%q is neither on nor off", word)
	}
	*into = new(word == "on")
	return nil
}

func optionalNumber(d *caddyfile.Dispenser, into **int) error {
	var word string
	if err := oneArg(d, &word); err != nil {
		return err
	}
	n, err := strconv.ParseUint(word, 10, 31)
	if err != nil {
		return d.Errf("%q is no whole number", word)
	}
	*into = new(int(n))
	return nil
}

func noArgs(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// modelPattern reads one pattern of models.
func modelPattern(d *caddyfile.Dispenser, into *catalog.Pattern) error {
	var word string
	if err := oneArg(d, &word); err != nil {
		return err
	}
	var err error
	*into, err = catalog.ParsePattern(word)
	return located(d, err)
}

// namesOf returns the models that families name exactly, as callers name them.
func namesOf(rows []catalog.FamilyRow) (names []string) {
	for _, row := range rows {
		for _, p := range row.Models {
			for _, kind := range []catalog.Kind{catalog.Video, catalog.Image} {
				if p.Exact() && catalog.CheckModel(kind, string(p)) == nil {
					names = append(names, string(p))
				}
			}
		}
	}
	return names
}
