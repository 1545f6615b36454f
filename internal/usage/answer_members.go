package usage

import "bytes"

// member returns the place of a member of an object at p. It is the table of all names for
// all dialects, because a backend behind a translating proxy may answer with the names of
// another dialect.
func (p place) member(name []byte) place {
	switch p {
	case requestBody, requestMessage, requestText, requestSource, requestImage:
		return p.requestMember(name)
	case usageReport, startUsage, iteration, serverToolUse, inputDetails, outputDetails, cachedDetails, cacheCreationDetails:
		return p.usageMember(name)
	default:
		return p.answerMember(name)
	}
}

// answerMember is member for the objects of an answer.
func (p place) answerMember(name []byte) place {
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
		case "sequence_number":
			return sequenceNumber
		case "status":
			return responseStatus
		case "conversation":
			return conversationOf
		case "container_id":
			return containerID
		case "meta":
			return answerMeta
		}
		return documentMember(name)
	case answerMeta:
		if string(name) == "billed_units" {
			return billedUnits
		}
	case billedUnits:
		if string(name) == "search_units" {
			return searchUnits
		}
	case imageAnswer:
		switch string(name) {
		case "data":
			return imageList
		case "b64_json", "url":
			return eventImage
		case "size":
			return imageSize
		case "quality":
			return imageQuality
		}
		return documentMember(name)
	case imageList:
		switch string(name) {
		case "b64_json", "url":
			return listedImage
		}
	case recordingAnswer:
		switch string(name) {
		case "text":
			return itemText
		case "delta":
			return text
		case "audio":
			return mediaData
		case "duration":
			return recordedSeconds
		case "choices": // some servers stream the text of a recording in chunks of a completion
			return choice
		}
		return documentMember(name)
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
		case "environment":
			return itemEnvironment
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
		case "environment":
			return itemEnvironment
		case "name", "arguments", "input", "content", "code", "summary":
			return itemText
		}
	case itemEnvironment:
		switch string(name) {
		case "container_id":
			return containerID
		case "type":
			return environmentType
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

// documentMember returns the place of a member that the documents of all routes may have.
func documentMember(name []byte) place {
	switch string(name) {
	case "type":
		return documentType
	case "error":
		return fault
	case "usage":
		return usageReport
	}
	return nothing
}
