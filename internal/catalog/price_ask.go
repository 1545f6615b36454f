package catalog

import (
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// Ask describes what a call requests, as far as it decides the greatest price.
type Ask struct {
	Model        string // as the body names it
	BodyBytes    int64  // of the request body, without what the following two count
	PromptTokens int64  // of prompts that are given as tokens
	InlineInput  int64  // tokens to reserve for inline images, documents and audio
	Prompts      int64  // at least 1
	Choices      int64  // for each prompt: the greater of n and best_of, at least 1
	MaxTokens    int64  // for each choice; it counts when HasMaxTokens
	HasMaxTokens bool

	// Links is the number of links. FullContext is set for any other source that
	// cannot be measured (a file id, a container, an earlier response, a PDF), and for
	// server-side tools. With either, the whole context is reserved.
	Links       int64
	FullContext bool

	// Media is what the text of the messages does not tell of the input. It is not
	// reserved, but estimated; see [Price.Estimate].
	Media Media

	// FullOutput is set for a body that may have its backend ignore MaxTokens: the
	// whole max_output is reserved, and bounds the charge.
	FullOutput bool

	Tiers      []Option     // what the body says of service_tier and of speed; nil: nothing
	Geo        Option       // inference_geo
	Tools      []ServerTool // server-side tools
	Audio      bool         // the body asks for audio or carries it
	AudioParam string       // the member that does so first; empty: content of a message
	Image      bool         // the body asks for images or carries them
	ImageOut   bool         // the body asks for images
	Compaction bool         // the body lets the backend compact the context, which is one more pass
	Thinking   bool         // the body asks the model to reason
	Models     []NamedModel // models that the body names beside its own
}

// text is the bound of the input that is inline text, in tokens.
func (a *Ask) text() int64 { return usage.Estimate(a.BodyBytes) + a.PromptTokens }

// CostsUnseen reports whether the call asks for something whose cost neither the
// text of its body nor that of its answer shows: tools that the backend runs, other
// models, one more pass, reasoning, audio, images, or input that is no inline text.
func (a *Ask) CostsUnseen() bool {
	return a.FullContext || a.Links > 0 || a.InlineInput > 0 || len(a.Tools) > 0 || a.Compaction || a.Thinking || a.Audio || a.ImageOut ||
		slices.ContainsFunc(a.Models, func(m NamedModel) bool { return m.Price != nil })
}

// Option is a member of a body that decides its price, and its value.
type Option struct {
	Param string // "service_tier", "speed", "inference_geo"
	Value string
}

// ServerTool is a tool that the backend runs.
type ServerTool struct {
	Param   string // "tools[0].type"
	Name    string // the vendor's type without its date
	MaxUses int64  // 0: not said
}

// NamedModel is a model that a body names beside its own.
type NamedModel struct {
	// Where it is named. A model of a tool ("tools[0].model") works beside the
	// model of the call, and one of "moderation.model" costs nothing; any other
	// ("fallbacks[0].model") may take its place.
	Param string

	Name      string
	Price     *Price // nil: free
	MaxUses   int64  // of a tool; 0: not said
	MaxTokens int64  // output of one use; 0: not said
}
