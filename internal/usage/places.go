package usage

import "bytes"

// place is the place of a value in an answer or a request. It decides how the value is
// handled. The elements of an array have the place of the array.
type place uint8

const (
	nothing place = iota // a skipped value

	// Objects, and arrays of objects.
	top                  // the document
	imageAnswer          // the document, if it has images; see [Reader.SetForm]
	imageList            // its images
	recordingAnswer      // the document, if it has speech or the text of a recording
	requestBody          // the body of a request
	requestMessage       // an element of its messages
	startMessage         // the message of a message_start
	usageReport          // a usage object
	startUsage           // the usage object of a message_start
	inputDetails         // the parts of an input figure
	outputDetails        // the parts of an output figure
	cachedDetails        // the parts of the figure of cached input
	serverToolUse        // server_tool_use: how often the backend ran which tool
	iteration            // an element of iterations: one pass of a model
	cacheCreationDetails // cache_creation by lifetime
	vendorMember         // an object with members of one vendor
	choice               // an element of choices
	reply                // the message or delta of a choice
	toolCall             // a call of a tool, or its function
	media                // speech
	picture              // an image
	contentBlock         // the content_block of a content_block_start
	contentBlocks        // the content of a whole message: a string, or an array of blocks
	responseBody         // the response in an event of /v1/responses
	outputItem           // an element of the output of a response that is not streamed
	listedItem           // an element of the output of the response in an event, whose text usually came before
	eventItem            // the item of an event, whose text usually came before
	itemAction           // what the tool of an item did
	toolReport           // tool_usage: the tools that the backend ran
	toolReportEntry      // one of these tools
	listAnswer           // the document, if it may be a list of items; see [Reader.CollectIDs]
	conversationOf       // the conversation of a response

	requestSource // the source of a part of a request
	requestImage  // an image in a request, or the object that holds it

	// Strings of text, and arrays and objects that contain them.
	text
	itemText    // of an item, in an event
	requestText // in a request, where blocks may hold blocks
	reasoning   // and its other names
	reasoningContent
	reasoningDetails
	otherText // of an unknown member of a message

	// Scalars, and objects whose members are skipped.
	toolInput    // arguments of a tool, as a string or as JSON
	toolName     // the name of a tool that is called
	signature    // the signature of a thought; some thoughts are sent without text
	mediaData    // speech, or a link to it
	imageData    // an image, or a link to it
	listedImage  // the same, in an element of imageList
	eventImage   // the same, in an event
	requestLink  // the link of a source in a request
	fault        // an error
	finishReason // why a choice ended
	choiceIndex  // the number of a choice
	toolUses     // how often one tool ran

	recordedSeconds // the length of a recording

	// Strings that are compared or stored. See [place.isToken].
	documentType    // the type of the document
	imageSize       // the size of the images
	imageQuality    // the quality of the images
	stopReason      // why a message ended
	model           // the model that served the call
	tier            // the service tier that served the call
	speed           // the speed mode that served the call
	geo             // the region that served the call
	itemType        // the type of an item
	actionType      // the type of the action of an item
	blockKind       // the type of a content block
	blockName       // the name of a content block
	iterationType   // the type of an iteration
	iterationModel  // the model of an iteration
	requestPartType // the type of a part of a request
	objectID        // the id of the document or of a response
	itemID          // the id of an item
	containerID     // the id of a container
	conversationID  // the id of a conversation
	responseStatus  // the status of a response

	// From here on there is a place for each figure.
	firstFigure
)

// reasoningPlaces is the number of places of reasoning and of text in unknown members.
const reasoningPlaces = otherText - reasoning + 1

// isContainer reports whether the members of an object or array at p are read.
func (p place) isContainer() bool {
	return top <= p && p <= otherText
}

// isToken reports whether a string at p is compared or stored.
func (p place) isToken() bool { return documentType <= p && p < firstFigure }

// isLink reports whether a string at p is a link of a request.
func (p place) isLink() bool { return p == requestImage || p == requestLink }

// isNumber reports whether a number at p is stored.
func (p place) isNumber() bool {
	return p >= firstFigure || p == toolUses || p == choiceIndex || p == recordedSeconds
}

// member returns the place of a member of an object at p. It is the table of all names for
// both dialects, because a backend behind a translating proxy may answer with the names of
// the other dialect.
func (p place) member(name []byte) place {
	switch p {
	case listAnswer:
		if string(name) == "data" {
			return listedItem
		}
		return top.member(name)
	case conversationOf:
		if string(name) == "id" {
			return conversationID
		}
	case top:
		switch string(name) {
		case "type":
			return documentType
		case "error":
			return fault
		case "usage":
			return usageReport
		case "message":
			return startMessage
		case "content":
			return contentBlocks
		case "delta":
			return text
		case "content_block":
			return contentBlock
		case "choices":
			return choice
		case "x_groq":
			return vendorMember
		case "model":
			return model
		case "service_tier":
			return tier
		case "stop_reason":
			return stopReason
		case "response":
			return responseBody
		case "output":
			return outputItem
		case "item":
			return eventItem
		case "tool_usage":
			return toolReport
		case "id":
			return objectID
		case "status":
			return responseStatus
		case "conversation":
			return conversationOf
		case "container_id":
			return containerID
		}
	case imageAnswer:
		switch string(name) {
		case "type":
			return documentType
		case "error":
			return fault
		case "usage":
			return usageReport
		case "data":
			return imageList
		case "b64_json", "url":
			return eventImage
		case "size":
			return imageSize
		case "quality":
			return imageQuality
		}
	case imageList:
		switch string(name) {
		case "b64_json", "url":
			return listedImage
		}
	case recordingAnswer:
		switch string(name) {
		case "type":
			return documentType
		case "error":
			return fault
		case "usage":
			return usageReport
		case "text":
			return itemText
		case "delta":
			return text
		case "audio":
			return mediaData
		case "duration":
			return recordedSeconds
		}
	case responseBody:
		switch string(name) {
		case "error":
			return fault
		case "usage":
			return usageReport
		case "model":
			return model
		case "service_tier":
			return tier
		case "output":
			return listedItem
		case "tool_usage":
			return toolReport
		case "id":
			return objectID
		case "status":
			return responseStatus
		case "conversation":
			return conversationOf
		}
	case outputItem:
		switch string(name) {
		case "id":
			return itemID
		case "container_id":
			return containerID
		case "type":
			return itemType
		case "action":
			return itemAction
		case "name":
			return toolName
		case "arguments", "input":
			return toolInput
		case "content", "code":
			return text
		case "summary":
			return reasoning
		case "encrypted_content":
			return signature
		case "result":
			return imageData
		}
	case listedItem, eventItem:
		switch string(name) {
		case "id":
			return itemID
		case "container_id":
			return containerID
		case "type":
			return itemType
		case "action":
			return itemAction
		case "name", "arguments", "input", "content", "code", "summary":
			return itemText
		}
	case itemText:
		if text.member(name) == text {
			return itemText
		}
	case itemAction:
		if string(name) == "type" {
			return actionType
		}
	case toolReport:
		return toolReportEntry
	case toolReportEntry:
		if string(name) == "num_requests" {
			return toolUses
		}
	case requestBody:
		switch string(name) {
		case "messages":
			return requestMessage
		case "prompt", "suffix", "system", "input", "instructions", "query":
			return requestText
		case "tools", "functions", "documents", "response_format", "text":
			return toolInput
		}
	case requestMessage:
		switch string(name) {
		case "content":
			return requestText
		case "tool_calls":
			return toolCall
		}
	case requestText:
		switch string(name) {
		case "text", "thinking", "content", "output", "summary":
			return requestText
		case "input", "arguments":
			return toolInput
		case "type":
			return requestPartType
		case "source":
			return requestSource
		case "image_url", "image":
			return requestImage
		}
	case requestSource:
		switch string(name) {
		case "content":
			return requestText
		case "url":
			return requestLink
		}
	case requestImage:
		if string(name) == "url" {
			return requestImage
		}
	case startMessage:
		switch string(name) {
		case "usage":
			return startUsage
		case "content":
			return text
		case "model":
			return model
		}
	case vendorMember:
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
		case "audio":
			return media
		case "images":
			return picture
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
		}
	case picture:
		switch string(name) {
		case "data", "url":
			return imageData
		case "image_url":
			return picture
		}
	case contentBlock, contentBlocks:
		switch string(name) {
		case "type":
			return blockKind
		case "name":
			return blockName
		case "content": // the result of a tool that the backend runs
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
	case usageReport, startUsage:
		return usageMember(p, name)
	case iteration:
		switch string(name) {
		case "type":
			return iterationType
		case "model":
			return iterationModel
		case "iterations":
			return nothing
		}
		return usageMember(p, name)
	case serverToolUse:
		if bytes.HasSuffix(name, []byte(usesSuffix)) {
			return toolUses
		}
	case inputDetails:
		switch string(name) {
		case "audio_tokens":
			return firstFigure + place(audioInput)
		case "image_tokens":
			return firstFigure + place(imageInput)
		case "cached_tokens_details":
			return cachedDetails
		case "cached_tokens":
			return firstFigure + place(cachedIncluded)
		case "cache_write_tokens", "cache_creation_tokens", "cached_creation_tokens":
			return firstFigure + place(cacheWriteIncluded)
		case "cache_creation_token_details":
			return cacheCreationDetails
		}
	case outputDetails:
		switch string(name) {
		case "reasoning_tokens", "thinking_tokens":
			return firstFigure + place(reasoningTokens)
		case "audio_tokens":
			return firstFigure + place(audioOutput)
		case "image_tokens":
			return firstFigure + place(imageOutput)
		}
	case cachedDetails:
		switch string(name) {
		case "audio_tokens":
			return firstFigure + place(audioCached)
		case "image_tokens":
			return firstFigure + place(imageCached)
		}
	case cacheCreationDetails:
		switch string(name) {
		case "ephemeral_5m_input_tokens":
			return firstFigure + place(cacheCreation5m)
		case "ephemeral_1h_input_tokens":
			return firstFigure + place(cacheCreation1h)
		}
	}
	return nothing
}

// isLabel reports whether a member of this name describes a text and is not text itself.
func isLabel(name []byte) bool {
	for _, label := range [...]string{"type", "id", "role", "name", "object", "status", "format", "index", "url", "logprobs", "model", "opaque", "reason"} {
		if rest, ok := bytes.CutSuffix(name, []byte(label)); ok && (len(rest) == 0 || rest[len(rest)-1] == '_') {
			return true
		}
	}
	return bytes.HasPrefix(name, []byte("encrypted"))
}

// usageMember is member for usage objects.
func usageMember(p place, name []byte) place {
	switch string(name) {
	case "input_tokens":
		return firstFigure + place(inputTokens)
	case "prompt_tokens":
		return firstFigure + place(promptTokens)
	case "output_tokens", "completion_tokens":
		switch {
		case p == startUsage:
			return firstFigure + place(startOutput)
		case name[0] == 'o':
			return firstFigure + place(outputTokens)
		default:
			return firstFigure + place(completionTokens)
		}
	case "cache_read_input_tokens":
		return firstFigure + place(cacheRead)
	case "cache_creation_input_tokens":
		return firstFigure + place(cacheCreationTotal)
	case "cached_tokens", "prompt_cache_hit_tokens":
		return firstFigure + place(cachedIncluded)
	case "reasoning_tokens":
		return firstFigure + place(reasoningTokens)
	case "total_tokens":
		return firstFigure + place(totalTokens)
	case "prompt_tokens_details", "input_tokens_details", "input_token_details":
		return inputDetails
	case "completion_tokens_details", "output_tokens_details", "output_token_details":
		return outputDetails
	case "cache_creation":
		return cacheCreationDetails
	case "server_tool_use":
		return serverToolUse
	case "seconds":
		return recordedSeconds
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
