package usage

import "slices"

// Report is the usage that an answer reports.
type Report struct {
	Tokens        Tokens // of the call itself, without Passes of other kinds
	Input, Output bool   // which side of Tokens was reported; see [Reader.Tokens]

	Model Name   // the model that served the call; empty: not reported
	Tier  string // the service tier that served the call; empty: not reported
	Speed string // usage.speed; empty: not reported
	Geo   string // the region that served the call; empty: not reported

	Images        int64  // images of an answer of images; partial ones count as one if no other came
	ImagesListed  bool   // the answer has a list of images, which may be empty
	Size, Quality string // of the images; empty: not reported
	Seconds       int64  // the length of the recording, rounded up; zero: not reported
	Searches      int64  // search units of a rerank call; zero: not reported

	Tools       []ToolUse // the tools that the backend ran, and how often
	CountsTools bool      // a counted tool that is not among Tools did not run
	Passes      []Pass    // as usage.iterations lists them

	// Declined is set if the model refused to answer before any output. Then the answer has
	// no content block, not even an empty one, and no tool ran. The vendor reports the tokens
	// of such a call and does not bill them.
	Declined bool
}

// ToolUse is the number of times that a backend ran one of its tools.
type ToolUse struct {
	Name string // such as "web_search"
	Uses int64
}

// Pass is one run of a model within a call.
type Pass struct {
	Kind   PassKind
	Model  string // empty: not reported
	Tokens Tokens
}

// PassKind says how the tokens of a pass relate to those of the call.
type PassKind uint8

// The kinds of passes, by the type that usage.iterations names.
const (
	OtherPass      PassKind = iota // unknown: counts as MessagePass
	MessagePass                    // part of the tokens of the call, unless a fallback served it
	FallbackPass                   // by the fallback model that served the call; part of the tokens of the call
	CompactionPass                 // in addition to the tokens of the call
	AdvisorPass                    // in addition to the tokens of the call, at the rates of its own model
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

// Additional reports whether the tokens of a pass are in addition to those of its call.
func (k PassKind) Additional() bool { return k == CompactionPass || k == AdvisorPass }

// All returns the tokens of the call and of the passes in addition to it.
func (r *Report) All() Tokens {
	all := r.Tokens
	for _, p := range r.Passes {
		if p.Kind.Additional() {
			all = all.plusAtMost(p.Tokens)
		}
	}
	return all
}

// plusAtMost is Plus with a bound of maxFigure for each kind.
func (t Tokens) plusAtMost(u Tokens) Tokens {
	n, more := t.ByKind(), u.ByKind()
	for kind := range n {
		n[kind] = min(min(n[kind], maxFigure)+min(more[kind], maxFigure), maxFigure)
	}
	return OfKinds(n)
}

const (
	// usesSuffix is the suffix of the names in server_tool_use.
	usesSuffix = "_requests"

	// maxTools and maxPasses bound what is stored for one answer.
	maxTools  = 16
	maxPasses = 64
)

// report collects the values of an answer that are not figures. A later value replaces an
// earlier one.
type report struct {
	model        Name
	tier         Name
	speed        Name
	geo          Name
	tool         Name      // the tool that the next number of uses is for
	refused      bool      // the stop reason is a refusal
	counted      bool      // a number of tool uses was reported
	inServerTool bool      // the content block is the use of a tool that the backend runs
	tools        []ToolUse // as reported in usage; at most maxTools
	items        *items    // nil: no tool was used, and the answer is not a response
	passes       *passes   // nil: the answer lists no iterations
}

// serviceName returns the field for the string at a place: tier, speed or region.
func (r *report) serviceName(p place) *Name {
	switch p {
	case tier:
		return &r.tier
	case speed:
		return &r.speed
	}
	return &r.geo
}

// setToolUses stores how often the current tool ran. Reports are cumulative, so the largest
// number counts.
func (r *report) setToolUses(n int64) {
	r.counted = true
	if use := useOf(&r.tools, r.tool.bytes(), n > 0); use != nil {
		use.Uses = max(use.Uses, n)
	}
}

// endBlock counts a content block that ended, if it is the use of a tool.
func (r *report) endBlock() {
	if r.inServerTool {
		r.itemsOf().ended.add(r.tool.bytes())
	}
}

// useOf returns the use of a tool in list. If there is none, it adds one if add is set and
// there is room, or else returns nil.
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

// toolUses returns how often tools ran. A final report that counts tools leaves out failed
// uses, and is returned as it is. Otherwise each content block or item counts as a use. The
// vendor does not document counts of tools in the usage of a response, so its items count as well.
func (r *report) toolUses(final bool) []ToolUse {
	list := slices.Clone(r.tools)
	if final && r.counted && !r.isResponse() || r.items == nil {
		return list
	}
	for _, started := range slices.Concat(r.items.ended.tools, r.items.listed.tools) {
		if use := useOf(&list, []byte(started.Name), true); use != nil {
			use.Uses = max(use.Uses, started.Uses)
		}
	}
	return list
}

// ranTools reports whether a tool in list ran.
func ranTools(list []ToolUse) bool {
	return slices.ContainsFunc(list, func(use ToolUse) bool { return use.Uses > 0 })
}

// openPass begins a list of passes or, if element is set, one of its elements. A list
// replaces the previous one unless it has fewer tokens.
func (r *report) openPass(element bool) {
	if r.passes == nil {
		r.passes = new(passes)
	}
	if element {
		r.passes.begin()
	} else {
		r.passes.previous, r.passes.list = r.passes.larger(), nil
	}
}

func (r *report) report() Report {
	result := Report{
		Model: r.model, Tier: r.tier.String(), Speed: r.speed.String(), Geo: r.geo.String(),
		CountsTools: r.counted, Declined: r.refused,
	}
	if r.passes != nil {
		result.Passes = slices.Clone(r.passes.larger())
	}
	return result
}

// passes are the elements of usage.iterations. Few answers have any.
type passes struct {
	list     []Pass // at most maxPasses
	previous []Pass // the previous list
	open     bool   // an element is being read
	kind     PassKind
	model    Name
	figures  figures
}

func (p *passes) begin() {
	p.open, p.kind, p.figures = true, OtherPass, figures{}
	p.model.n = 0
}

// larger returns the list, or the previous one if that has more tokens.
func (p *passes) larger() []Pass {
	if sumOf(p.list) < sumOf(p.previous) {
		return p.previous
	}
	return p.list
}

// sumOf returns the number of tokens of all passes.
func sumOf(list []Pass) (sum int64) {
	for i := range list {
		sum += list[i].Tokens.AllInput() + list[i].Tokens.AllOutput()
	}
	return sum
}

// close ends an element. If there are maxPasses already, the tokens of the element are added
// to the last pass of its kind, so that none are lost.
func (p *passes) close() {
	p.open = false
	tokens, _, _ := p.figures.tokens(true)
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

// Name is a short string that is stored without an allocation.
type Name struct {
	buf [48]byte
	n   uint8
}

// NameOf returns text as a Name.
func NameOf(text string) (n Name) {
	n.set([]byte(text))
	return n
}

// set stores a name. A name that is too long is truncated. It then equals no name of a
// configuration.
func (n *Name) set(text []byte) { n.n = uint8(copy(n.buf[:], text)) }

func (n *Name) bytes() []byte { return n.buf[:n.n] }

// String returns the name. For the usual tiers and regions it does not allocate.
func (n Name) String() string {
	for _, usual := range usualNames {
		if string(n.bytes()) == usual {
			return usual
		}
	}
	return string(n.bytes())
}

var usualNames = [...]string{"", "default", "standard", "priority", "flex", "fast", "auto", "us", "global", "not_available"}
