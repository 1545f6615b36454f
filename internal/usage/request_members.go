package usage

// requestMember is member for the objects of a request.
func (p place) requestMember(name []byte) place {
	switch p {
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
	}
	return nothing
}
