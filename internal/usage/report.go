package usage

import (
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// Report is what an answer says of its usage.
type Report struct {
	Tokens        Tokens // of the call itself, without Passes of other kinds
	Input, Output bool   // which side of Tokens was reported; see [Reader.Tokens]

	Model Name   // that answered; empty: not said
	Tier  string // the service tier that served the call; empty: not said
	Speed string // as Tier, of usage.speed
	Geo   string // where it was served; empty: not said

	Tools       []ToolUse // the tools that the backend ran, and how often
	CountsTools bool      // a counted tool that is not among Tools did not run
	Passes      []Pass    // as usage.iterations lists them

	// Declined is set when the model refused to answer before any output: no
	// content block came, not even an empty one, and no tool ran. The vendor
	// reports the tokens of such a call and does not bill them.
	Declined bool
}

// ToolUse is how often a backend ran one of its tools.
type ToolUse struct {
	Name string // as "web_search"
	Uses int64
}

// Pass is one run of a model within a call.
type Pass struct {
	Kind   PassKind
	Model  string // empty: not said
	Tokens Tokens
}

// PassKind says how the tokens of a pass relate to those of the call.
type PassKind uint8

// The kinds of passes, by the type that usage.iterations names.
const (
	OtherPass      PassKind = iota // not known: as MessagePass
	MessagePass                    // within the tokens of the call, unless a fallback answered
	FallbackPass                   // by the model that answered in the place of another; within the tokens of the call
	CompactionPass                 // beside the tokens of the call
	AdvisorPass                    // beside the tokens of the call, at the rates of its own model
)

func passKindOf(word []byte) PassKind {
	switch string(word) {
	case "message":
		return MessagePass
	case "fallback_message":
		return FallbackPass
	case "compaction":
		return CompactionPass
	case "advisor_message":
		return AdvisorPass
	}
	return OtherPass
}

// Beside reports whether the tokens of a pass are not among those of its call.
func (k PassKind) Beside() bool { return k == CompactionPass || k == AdvisorPass }

// All returns the tokens of the call and of the passes beside it.
func (r *Report) All() Tokens {
	all := r.Tokens
	for _, p := range r.Passes {
		if p.Kind.Beside() {
			all = all.plusAtMost(p.Tokens)
		}
	}
	return all
}

// plusAtMost is Plus for figures of any number of reports: each kind stops at
// maxFigure.
func (t Tokens) plusAtMost(u Tokens) Tokens {
	n, more := t.ByKind(), u.ByKind()
	for kind := range n {
		n[kind] = min(min(n[kind], maxFigure)+min(more[kind], maxFigure), maxFigure)
	}
	return OfKinds(n)
}

const (
	// usesSuffix ends the name of every member of server_tool_use.
	usesSuffix = "_requests"

	// maxTools and maxPasses bound what is kept of one answer.
	maxTools  = 16
	maxPasses = 64
)

// report collects what an answer says beside its figures. The last word counts.
type report struct {
	model   Name
	tier    Name
	speed   Name
	geo     Name
	tool    Name // whose uses come next
	refused bool
	counted bool      // a count of tool uses came
	ran     bool      // the content block is the use of a tool that the backend runs
	tools   []ToolUse // those that ran, as counted; at most maxTools
	begun   []ToolUse // the uses whose blocks came; at most maxTools
	passes  *passes   // nil: the answer lists no iterations
}

// served returns where the word of a place is kept.
func (r *report) served(p place) *Name {
	switch p {
	case tier:
		return &r.tier
	case speed:
		return &r.speed
	}
	return &r.geo
}

// used notes how often the tool named last ran. Reports are cumulative, and the
// greatest counts.
func (r *report) used(n int64) {
	r.counted = true
	if use := useOf(&r.tools, r.tool.bytes(), n > 0); use != nil {
		use.Uses = max(use.Uses, n)
	}
}

// begin notes that a content block ended, which may be the use of a tool.
func (r *report) begin() {
	if r.ran {
		if use := useOf(&r.begun, r.tool.bytes(), true); use != nil {
			use.Uses++
		}
	}
}

// useOf returns the use of a tool in list, which it is added to where add is set
// and there is room; else nil.
func useOf(list *[]ToolUse, name []byte, add bool) *ToolUse {
	for i := range *list {
		if (*list)[i].Name == string(name) {
			return &(*list)[i]
		}
	}
	if !add || len(*list) == maxTools {
		return nil
	}
	*list = append(*list, ToolUse{Name: string(name)})
	return &(*list)[len(*list)-1]
}

// toolUses returns how often tools ran: as the last report counts them, which
// leaves out those that failed. While that is still to come, or where no report
// counts any, they ran at least as often as their blocks came.
func (r *report) toolUses(final bool) []ToolUse {
	list := slices.Clone(r.tools)
	if final && r.counted {
		return list
	}
	for _, begun := range r.begun {
		if use := useOf(&list, []byte(begun.Name), true); use != nil {
			use.Uses = max(use.Uses, begun.Uses)
		}
	}
	return list
}

// ranTools reports whether a tool of list has run.
func ranTools(list []ToolUse) bool {
	return slices.ContainsFunc(list, func(use ToolUse) bool { return use.Uses > 0 })
}

// openPass begins the list of passes, which replaces the list before if it comes to
// as much, or one of its elements.
func (r *report) openPass(element bool) {
	if r.passes == nil {
		r.passes = new(passes)
	}
	if element {
		r.passes.begin()
	} else {
		r.passes.before, r.passes.list = r.passes.greater(), nil
	}
}

func (r *report) report() Report {
	whole := Report{
		Model: r.model, Tier: r.tier.String(), Speed: r.speed.String(), Geo: r.geo.String(),
		CountsTools: r.counted, Declined: r.refused,
	}
	if r.passes != nil {
		whole.Passes = slices.Clone(r.passes.greater())
	}
	return whole
}

// passes reads the elements of usage.iterations. Few answers have any.
type passes struct {
	list    []Pass // at most maxPasses
	before  []Pass // the list before
	open    bool   // an element is being read
	kind    PassKind
	model   Name
	figures figures
}

func (p *passes) begin() {
	p.open, p.kind, p.figures = true, OtherPass, figures{}
	p.model.n = 0
}

// greater returns the list, or the one before if that comes to more.
func (p *passes) greater() []Pass {
	if sumOf(p.list) < sumOf(p.before) {
		return p.before
	}
	return p.list
}

// sumOf is the number of tokens of all passes.
func sumOf(list []Pass) (sum int64) {
	for i := range list {
		sum += list[i].Tokens.AllInput() + list[i].Tokens.AllOutput()
	}
	return sum
}

// close ends an element. Beyond maxPasses it is added to the last one listed of
// its kind, so that no tokens are lost.
func (p *passes) close() {
	p.open = false
	tokens, _, _ := p.figures.tokens(dialect.Anthropic)
	pass := Pass{p.kind, p.model.String(), tokens}
	if len(p.list) < maxPasses {
		p.list = append(p.list, pass)
		return
	}
	for i := range slices.Backward(p.list) {
		if p.list[i].Kind == pass.Kind {
			p.list[i].Tokens = p.list[i].Tokens.plusAtMost(tokens)
			return
		}
	}
	p.list[maxPasses-1].Tokens = p.list[maxPasses-1].Tokens.plusAtMost(tokens)
}

// Name is a short string that is kept without an allocation.
type Name struct {
	buf [48]byte
	n   uint8
}

// NameOf returns text as a Name.
func NameOf(text string) (n Name) {
	n.set([]byte(text))
	return n
}

// set keeps a name. One that is too long is kept as far as it fits: it then
// equals no name in a configuration.
func (n *Name) set(text []byte) { n.n = uint8(copy(n.buf[:], text)) }

func (n *Name) bytes() []byte { return n.buf[:n.n] }

// String returns the name. The usual names of tiers and regions are not
// allocated anew.
func (n Name) String() string {
	for _, usual := range usualNames {
		if string(n.bytes()) == usual {
			return usual
		}
	}
	return string(n.bytes())
}

var usualNames = [...]string{"", "default", "standard", "priority", "flex", "fast", "auto", "us", "global", "not_available"}
