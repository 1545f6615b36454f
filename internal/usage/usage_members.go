package usage

import "bytes"

// usageMember is member for the objects of a usage report.
func (p place) usageMember(name []byte) place {
	switch p {
	case usageReport, startUsage:
		return p.figureMember(name)
	case iteration:
		switch string(name) {
		case "type":
			return iterationType
		case "model":
			return iterationModel
		case "iterations":
			return nothing
		}
		return p.figureMember(name)
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

// figureMember is usageMember for the figures and parts of a usage object or an iteration.
func (p place) figureMember(name []byte) place {
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
