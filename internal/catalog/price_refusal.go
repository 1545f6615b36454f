package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// unpriced returns an error for an option that the price does not cover.
func (p *Price) unpriced(a *CallSpec) *fault.Fault {
	for _, o := range a.Tiers {
		if !slices.Contains(usualTiers, o.Value) && p.tier(o.Value) == nil {
			var priced []string
			for _, t := range p.Tier {
				priced = append(priced, t.Names...)
			}
			return unpricedOption(o.Param, o.Value, append(priced, "default"))
		}
	}
	if region := a.Geo.Value; !slices.Contains(usualGeos, region) && p.geo(region) == nil {
		var priced []string
		for _, g := range p.Geo {
			priced = append(priced, g.Name)
		}
		return unpricedOption(a.Geo.Param, region, append(priced, "global"))
	}
	for i := range a.Tools {
		if tool := &a.Tools[i]; p.tool(tool.Name) == nil {
			var priced []string
			for _, c := range p.Call {
				priced = append(priced, c.Tool)
			}
			f := unpricedOption(tool.Param, tool.Name, priced)
			f.Message += "; the operator can price it: call " + tool.Name + " <amount>"
			return f
		}
	}
	if f := p.unpricedUnits(&a.Units); f != nil {
		return f
	}
	if p.ByUnits(a.Units.Unit) {
		return nil
	}
	switch {
	case a.Audio && p.AudioInput == nil && p.AudioOutput == nil:
		param := cmp.Or(a.AudioParam, "messages")
		return fault.At(fault.UnpricedOption, param, "`%s`: audio has no price for this model; allowed: text; the operator can price it: audio_input <amount>, audio_output <amount>", param)
	case a.ImageOut && p.ImageOutput == nil && (a.Units.Unit != ImageUnit || len(p.Image) == 0):
		param := "modalities"
		if a.Units.Unit == ImageUnit {
			param = "model"
		}
		return fault.At(fault.UnpricedOption, param, "`%s`: images as output have no price for this model; allowed: text; the operator can price them: image_output <amount>", param)
	}
	return nil
}

func unpricedOption(param, value string, priced []string) *fault.Fault {
	allowed := "no other value has a price either"
	if len(priced) > 0 {
		allowed = "allowed: " + strings.Join(priced, ", ")
	}
	return fault.At(fault.UnpricedOption, param, "`%s`: %q has no price for this model; %s", param, value, allowed)
}
