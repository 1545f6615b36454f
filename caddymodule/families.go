package caddymodule

import (
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/settings"
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
		if err := settings.Parsed(&v.Models, catalog.ParsePattern)(d); err != nil {
			return err
		}
		row.Variants = append(row.Variants, v)
		last := &row.Variants[len(row.Variants)-1]
		return settings.Block(d, overrides(&last.Video, &last.Image))
	}
	if err := settings.Block(d, words, "variant"); err != nil {
		return err
	}
	if err := row.Validate(); err != nil {
		return at.WrapErr(err)
	}
	a.FamilyRows = append(a.FamilyRows, row)
	_, err = catalog.NewFamilies(a.FamilyRows)
	return settings.Located(&at, err)
}

// overrides returns the words for options that differ from those of the family.
func overrides(video, image *catalog.Override) map[string]settings.Reader {
	return map[string]settings.Reader{
		"video": func(d *caddyfile.Dispenser) error { return override(d, video) },
		"image": func(d *caddyfile.Dispenser) error { return override(d, image) },
	}
}

// override reads the options that differ from those of the family:
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
	return settings.Block(d, map[string]settings.Reader{
		"duration":       settings.Into(&o.Duration, numbers),
		"count":          settings.Into(&o.Count, numbers),
		"resolution":     settings.Into(&o.Resolution, choice),
		"aspect_ratio":   settings.Into(&o.AspectRatio, choice),
		"scene_type":     settings.Into(&o.SceneType, wordsOrOff),
		"reference_type": settings.Into(&o.ReferenceType, wordsOrOff),
		"subject_inputs": settings.One(func(word string) error {
			o.SubjectInputs = new(catalog.Subjects(word))
			return nil
		}),
		"audio":             settings.Parsed(&o.Audio, parseOnOff),
		"frame_interpolate": settings.Parsed(&o.FrameInterpolate, parseOnOff),
		"object_id":         settings.Parsed(&o.ObjectID, parseOnOff),
		"voice_id":          settings.Parsed(&o.VoiceID, parseOnOff),
		"text":              settings.Parsed(&o.Text, parseOnOff),
		"last_frame_alone":  settings.Parsed(&o.LastFrameAlone, parseOnOff),
		"max_inputs":        settings.Parsed(&o.MaxInputs, parseNumber),
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
	return settings.Block(d, map[string]settings.Reader{
		"default": settings.One(func(word string) error {
			n, err := parseNumber(word)
			if err == nil {
				ns.Default = *n
			}
			return err
		}),
	})
}

// choice reads the allowed words, and in a block the default one.
func choice(d *caddyfile.Dispenser, into **catalog.Choice) error {
	c := new(catalog.Choice)
	if err := wordsOrOff(d, &c.Allowed); err != nil {
		return err
	}
	*into = c
	return settings.Block(d, map[string]settings.Reader{
		"default":   settings.One(settings.Text(&c.Default)),
		"text_only": settings.Flag(&c.TextOnly),
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

func parseOnOff(word string) (*bool, error) {
	if word != "on" && word != "off" {
		return nil, fmt.Errorf("%q is not supported; allowed: on, off", word)
	}
	return new(word == "on"), nil
}

func parseNumber(word string) (*int, error) {
	n, err := strconv.ParseUint(word, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", word)
	}
	return new(int(n)), nil
}

// namesOf returns the exact model names of families, without patterns.
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
