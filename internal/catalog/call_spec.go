package catalog

import (
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// CallSpec is the parameters of a call that determine its highest cost.
type CallSpec struct {
	Model        string // as in the body
	BodyBytes    int64  // length of the body, without the parts that the next two fields count
	PromptTokens int64  // number of tokens of prompts that are given as tokens
	InlineInput  int64  // tokens to reserve for inline images, documents and audio
	Prompts      int64  // at least 1
	PromptParam  string // the member that has the prompts; empty: prompt
	Choices      int64  // per prompt: the maximum of n and best_of, at least 1
	MaxTokens    int64  // per choice; valid if HasMaxTokens
	HasMaxTokens bool
	NoOutput     bool // the answer has no charged output, as an answer with embeddings

	// PartialOutput is the number of output tokens to reserve for partial images.
	PartialOutput int64

	// Links is the number of links. FullContext is set for any other source of
	// unknown size (a file id, a container, an earlier response, a PDF) and for
	// server-side tools. Both reserve the whole context.
	Links       int64
	FullContext bool

	// Media is input other than the text of the messages. It is not reserved, but
	// estimated; see [Price.Estimate].
	Media Media

	// FullOutput is set if the backend may ignore MaxTokens. Then max_output is
	// reserved and limits the charge.
	FullOutput bool

	Tiers      []Option     // service_tier and speed of the body; nil: not set
	Geo        Option       // inference_geo
	Tools      []ServerTool // server-side tools
	Audio      bool         // the body requests or contains audio
	AudioParam string       // first member that requests audio; empty: content of a message
	Image      bool         // the body requests or contains images
	ImageOut   bool         // the body requests images
	Units      Units        // what the call may be charged by in addition to its tokens
	Compaction bool         // the backend may compact the context, in one more pass
	Thinking   bool         // the body enables reasoning
	Models     []NamedModel // other models that the body names
}

// text returns the maximum number of tokens of inline text.
func (a *CallSpec) text() int64 { return usage.Estimate(a.BodyBytes) + a.PromptTokens }

// CostsUnseen reports whether the texts of request and answer do not show the whole cost. This is so
// with tools that the backend runs, other models, one more pass, reasoning, audio, images, or input
// that is not inline text.
func (a *CallSpec) CostsUnseen() bool {
	return a.FullContext || a.Links > 0 || a.InlineInput > 0 || len(a.Tools) > 0 || a.Compaction || a.Thinking || a.Audio || a.ImageOut ||
		slices.ContainsFunc(a.Models, func(m NamedModel) bool { return m.Price != nil })
}

// Option is a member of a body that affects its price, and its value.
type Option struct {
	Param string // "service_tier", "speed", "inference_geo"
	Value string
}

// ServerTool is a tool that the backend runs.
type ServerTool struct {
	Param   string // "tools[0].type"
	Name    string // the vendor's type without its date
	MaxUses int64  // 0: not set
}

// NamedModel is another model that a body names.
type NamedModel struct {
	// The path in the body. The model of a tool ("tools[0].model") runs in addition
	// to the model of the call. A model for moderation ("moderation.model") costs
	// nothing. Any other model ("fallbacks[0].model") may replace that of the call.
	Param string

	Name      string
	Price     *Price // nil: free
	MaxUses   int64  // of a tool; 0: not set
	MaxTokens int64  // output of one use; 0: not set
}
