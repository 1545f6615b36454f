package catalog

import (
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// options are the rare options of a call. Its methods may be called on nil.
type options struct {
	model        string
	tiers        []Option
	geo          Option
	tools        []ServerTool
	advisors     []NamedModel
	alternatives []alternative
}

// alternative is a model that may answer instead of another one.
type alternative struct {
	name   string
	price  *Price // nil: free
	bounds Bounds
}

func newOptions(a *CallSpec) *options {
	o := &options{model: a.Model, tiers: a.Tiers, geo: a.Geo, tools: a.Tools}
	for _, m := range a.Models {
		if m.isAdditional() {
			o.advisors = append(o.advisors, m)
		}
	}
	return o
}

// addAlternatives adds the models that may answer instead of the model of the call. It sets the
// reservation of b to that of the most expensive model.
func (o *options) addAlternatives(a CallSpec, b *Bounds) *fault.Fault {
	models := a.Models
	a.Models = o.advisors
	for _, m := range models {
		if !m.isAlternative() {
			continue
		}
		other := alternative{name: m.Name, price: m.Price, bounds: *b}
		if m.Price != nil {
			a.Model = m.Name
			var f *fault.Fault
			if other.bounds, f = m.Price.Bounds(a); f != nil {
				return f
			}
			b.reserved = max(b.reserved, other.bounds.reserved)
		}
		o.alternatives = append(o.alternatives, other)
	}
	return nil
}

// requested returns the value that the request sets for a member.
func (o *options) requested(param string) string {
	if o == nil {
		return ""
	}
	if param == "inference_geo" {
		return o.geo.Value
	}
	for _, t := range o.tiers {
		if t.Param == param {
			return t.Value
		}
	}
	return ""
}

func (o *options) declares(tool string) bool {
	return o != nil && slices.ContainsFunc(o.tools, func(t ServerTool) bool { return t.Name == tool })
}

// servedBy returns the price of the model that answered, and the limits of a call to it. If the answer
// names none of the possible models, or has ended before it named one, it returns the most expensive one.
func (o *options) servedBy(p *Price, b Bounds, r *usage.Report) (*Price, Bounds) {
	if o == nil || len(o.alternatives) == 0 {
		return p, b
	}
	name, fallback := r.Model.String(), false
	for _, pass := range r.Passes {
		if pass.Kind == usage.FallbackPass {
			name, fallback = pass.Model, true
		}
	}
	if len(r.Passes) > 0 && !fallback {
		return p, b
	}
	price, bounds, best := p, b, matchModel(o.model, name)
	highest, highestBounds := p, b
	for _, other := range o.alternatives {
		if n := matchModel(other.name, name); n > best {
			price, bounds, best = other.price, other.bounds, n
		}
		if other.bounds.maxCharge > highestBounds.maxCharge {
			highest, highestBounds = other.price, other.bounds
		}
	}
	if best == 0 {
		price, bounds = highest, highestBounds
	}
	bounds.options = o
	return price, bounds
}

// advisor returns the advisor that made a pass, and the number of its earlier passes. The advisor has
// no name if the call declares none.
func (o *options) advisor(earlier []usage.Pass, pass *usage.Pass) (m *NamedModel, passes int64) {
	m = o.advisorOf(pass)
	for i := range earlier {
		if earlier[i].Kind == usage.AdvisorPass && o.advisorOf(&earlier[i]) == m {
			passes++
		}
	}
	return m, passes
}

// undeclaredAdvisor represents the advisor of a call that declares none.
var undeclaredAdvisor NamedModel

func (o *options) advisorOf(pass *usage.Pass) *NamedModel {
	if o == nil || len(o.advisors) == 0 {
		return &undeclaredAdvisor
	}
	found, best := &o.advisors[0], 0
	for i := range o.advisors {
		if n := matchModel(o.advisors[i].Name, pass.Model); n > best {
			found, best = &o.advisors[i], n
		}
	}
	return found
}

// matchModel returns the length of a requested model name if it matches the name in an answer, which
// may add a date. Otherwise it returns 0.
func matchModel(requested, answered string) int {
	rest, ok := strings.CutPrefix(answered, requested)
	if !ok || requested == "" || rest != "" && !strings.ContainsAny(rest[:1], "-@:.") {
		return 0
	}
	return len(requested)
}
