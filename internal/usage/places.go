package usage

import "bytes"

// place is where in an answer a value stands. It decides what is done with the
// value. An array is transparent: its elements stand where it stands.
type place uint8

const (
	nothing place = iota // a part of no interest, passed over

	// Objects, or arrays of them.
	top          // the document
	asked        // the body of a request
	turn         // an element of its messages
	opening      // the message of a message_start
	usageReport  // a usage object
	openingUsage // that of a message_start
	inputParts   // what an input figure contains
	outputParts  // what an output figure contains
	cachedParts  // what the figure of cached input contains
	serverTools  // server_tool_use: how often the backend ran which tool
	iteration    // an element of iterations: one pass of a model
	cacheParts   // cache_creation by lifetime
	extension    // a vendor's own corner of the document
	choice       // an element of choices
	reply        // the message or delta of a choice
	toolCall     // a call of a tool, or its function
	media        // speech or an image
	block        // the content_block of a content_block_start
	blocks       // the content of a whole message: a string, or an array of blocks

	askedSource // the source of a part of a request
	askedImage  // an image in a request, or the object that holds it

	// Strings of text, or arrays and objects that hold such.
	text
	askedText // in a request, where blocks may hold blocks
	reasoning // and its other names
	reasoningContent
	reasoningDetails
	otherText // of a member of a reply that is not known

	// Scalars, and objects whose insides are of no interest.
	toolInput    // arguments of a tool, as a string or as JSON
	toolName     // the name of a tool that is called
	signature    // that of a thought, which may stand for all of it
	mediaData    // speech or an image, or a link to it
	askedLink    // the link of a source in a request
	fault        // an error
	finishReason // why a choice ended
	choiceIndex  // the number of a choice
	toolUses     // how often one tool ran

	// Words: strings that are compared or kept. See [place.word].
	kind       // the type of the document
	stopReason // why a message ended
	model      // the model that answered
	tier       // the service tier that answered
	speed      // the speed at which it answered
	geo        // where it answered
	blockKind  // the type of a content block
	blockName  // its name
	passKind   // the type of an iteration
	passModel  // its model
	askedType  // the type of a part of a request

	// Every figure is a place of its own, from here on.
	firstFigure
)

// besides is the number of places of text beside the content.
const besides = otherText - reasoning + 1

// holds reports whether an object or array at p is looked into.
func (p place) holds() bool {
	return top <= p && p <= otherText
}

// word reports whether a string at p is compared or kept.
func (p place) word() bool { return kind <= p && p < firstFigure }

// links reports whether a string at p is a link of a request.
func (p place) links() bool { return p == askedImage || p == askedLink }

// counts reports whether a number at p is kept.
func (p place) counts() bool { return p >= firstFigure || p == toolUses || p == choiceIndex }

// member returns the place of the member called name of an object at p. It is
// the table of all names that are read, for both dialects at once, since a
// backend behind a translating proxy may answer with the names of the other.
func (p place) member(name []byte) place {
	switch p {
	case top:
		switch string(name) {
		case "type":
			return kind
		case "error":
			return fault
		case "usage":
			return usageReport
		case "message":
			return opening
		case "content":
			return blocks
		case "delta":
			return text
		case "content_block":
			return block
		case "choices":
			return choice
		case "x_groq":
			return extension
		case "model":
			return model
		case "service_tier":
			return tier
		case "stop_reason":
			return stopReason
		}
	case asked:
		switch string(name) {
		case "messages":
			return turn
		case "prompt", "suffix", "system":
			return askedText
		case "tools", "functions", "documents", "response_format":
			return toolInput
		}
	case turn:
		switch string(name) {
		case "content":
			return askedText
		case "tool_calls":
			return toolCall
		}
	case askedText:
		switch string(name) {
		case "text", "thinking", "content":
			return askedText
		case "input":
			return toolInput
		case "type":
			return askedType
		case "source":
			return askedSource
		case "image_url", "image":
			return askedImage
		}
	case askedSource:
		switch string(name) {
		case "content":
			return askedText
		case "url":
			return askedLink
		}
	case askedImage:
		if string(name) == "url" {
			return askedImage
		}
	case opening:
		switch string(name) {
		case "usage":
			return openingUsage
		case "content":
			return text
		case "model":
			return model
		}
	case extension:
		if string(name) == "usage" {
			return usageReport
		}
	case choice:
		switch string(name) {
		case "index":
			return choiceIndex
		case "finish_reason":
			return finishReason
		case "delta", "message":
			return reply
		case "text":
			return text
		case "reasoning", "reasoning_content", "reasoning_details":
			return reply.member(name)
		case "error":
			return fault
		case "usage":
			return usageReport
		}
	case reply:
		switch string(name) {
		case "role":
		case "content", "refusal":
			return text
		case "reasoning":
			return reasoning
		case "reasoning_content":
			return reasoningContent
		case "reasoning_details":
			return reasoningDetails
		case "tool_calls", "function_call":
			return toolCall
		case "audio", "images":
			return media
		default:
			return otherText.member(name)
		}
	case toolCall:
		switch string(name) {
		case "function", "custom":
			return toolCall
		case "arguments", "input":
			return toolInput
		case "name":
			return toolName
		}
	case media:
		switch string(name) {
		case "transcript":
			return text
		case "data", "url":
			return mediaData
		case "image_url":
			return media
		}
	case block, blocks:
		switch string(name) {
		case "type":
			return blockKind
		case "name":
			return blockName
		case "content": // what a tool of the backend has found
			return nothing
		}
		return text.member(name)
	case text:
		switch string(name) {
		case "text", "thinking", "partial_json", "refusal", "content":
			return text
		case "reasoning", "reasoning_content", "reasoning_details":
			return reply.member(name)
		case "input":
			return toolInput
		case "signature":
			return signature
		case "stop_reason":
			return stopReason
		}
	case reasoning, reasoningContent, reasoningDetails, otherText:
		switch {
		case string(name) == "data" || bytes.HasSuffix(name, []byte("signature")):
			return signature
		case !isLabel(name):
			return p
		}
	case usageReport, openingUsage:
		return usageMember(p, name)
	case iteration:
		switch string(name) {
		case "type":
			return passKind
		case "model":
			return passModel
		case "iterations":
			return nothing
		}
		return usageMember(p, name)
	case serverTools:
		if bytes.HasSuffix(name, []byte(usesSuffix)) {
			return toolUses
		}
	case inputParts:
		switch string(name) {
		case "audio_tokens":
			return firstFigure + place(audioInput)
		case "image_tokens":
			return firstFigure + place(imageInput)
		case "cached_tokens_details":
			return cachedParts
		case "cached_tokens":
			return firstFigure + place(cachedInside)
		case "cache_write_tokens", "cache_creation_tokens", "cached_creation_tokens":
			return firstFigure + place(writtenInside)
		case "cache_creation_token_details":
			return cacheParts
		}
	case outputParts:
		switch string(name) {
		case "reasoning_tokens", "thinking_tokens":
			return firstFigure + place(reasoningTokens)
		case "audio_tokens":
			return firstFigure + place(audioOutput)
		case "image_tokens":
			return firstFigure + place(imageOutput)
		}
	case cachedParts:
		switch string(name) {
		case "audio_tokens":
			return firstFigure + place(audioCached)
		case "image_tokens":
			return firstFigure + place(imageCached)
		}
	case cacheParts:
		switch string(name) {
		case "ephemeral_5m_input_tokens":
			return firstFigure + place(created5m)
		case "ephemeral_1h_input_tokens":
			return firstFigure + place(created1h)
		}
	}
	return nothing
}

// isLabel reports whether a member of this name describes a text and has none.
func isLabel(name []byte) bool {
	for _, label := range [...]string{"type", "id", "role", "name", "object", "status", "format", "index", "url", "logprobs", "model", "opaque", "reason"} {
		if rest, ok := bytes.CutSuffix(name, []byte(label)); ok && (len(rest) == 0 || rest[len(rest)-1] == '_') {
			return true
		}
	}
	return bytes.HasPrefix(name, []byte("encrypted"))
}

// usageMember is the part of the table for usage objects.
func usageMember(p place, name []byte) place {
	switch string(name) {
	case "input_tokens":
		return firstFigure + place(inputTokens)
	case "prompt_tokens":
		return firstFigure + place(promptTokens)
	case "output_tokens", "completion_tokens":
		switch {
		case p == openingUsage:
			return firstFigure + place(openingTokens)
		case name[0] == 'o':
			return firstFigure + place(outputTokens)
		default:
			return firstFigure + place(completionTokens)
		}
	case "cache_read_input_tokens":
		return firstFigure + place(cacheRead)
	case "cache_creation_input_tokens":
		return firstFigure + place(cacheCreated)
	case "cached_tokens", "prompt_cache_hit_tokens":
		return firstFigure + place(cachedInside)
	case "reasoning_tokens":
		return firstFigure + place(reasoningTokens)
	case "total_tokens":
		return firstFigure + place(totalTokens)
	case "prompt_tokens_details", "input_tokens_details", "input_token_details":
		return inputParts
	case "completion_tokens_details", "output_tokens_details", "output_token_details":
		return outputParts
	case "cache_creation":
		return cacheParts
	case "server_tool_use":
		return serverTools
	case "iterations":
		return iteration
	case "service_tier":
		return tier
	case "speed":
		return speed
	case "inference_geo":
		return geo
	}
	return nothing
}
