package modelcall

import "github.com/caddy-modelgate/modelgate/internal/strictjson"

// textParts are the types of content that contain only inline text, or whose media are in
// members with rules of their own.
var textParts = []string{
	"text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "image_url", "input_audio", "file",
	"search_result", "refusal", "tool_reference", "input_text", "output_text", "input_image", "input_file", "audio_url",
	"server_tool_use", "web_search_tool_result", "web_search_result", "web_search_tool_result_error",
	"web_fetch_tool_result", "web_fetch_result", "web_fetch_tool_result_error", "code_execution_tool_result", "code_execution_result",
	"bash_code_execution_tool_result", "bash_code_execution_result", "text_editor_code_execution_tool_result",
	"tool_search_tool_result", "tool_search_tool_search_result", "mcp_tool_use", "mcp_tool_result", "advisor_tool_result",
	"compaction", "reasoning", "reasoning.text", "summary_text",
}

// maxParts bounds the depth to which parts of content are read. A page in a document in
// the result of a tool in a message has the depth four.
const maxParts = 4

// contentPart is the table for a part of the content of a message, in either dialect.
var contentPart = partTable(maxParts)

// The members of an object with media.
var (
	mediaMembers = mediaTable(noteMediaURL, noteMediaData)
	audioMembers = mediaTable(noteAudioURL, noteAudioData)
)

func mediaTable(link, data int) *strictjson.Table {
	return tableWithState(
		rule{Name: "url", Deciding: true, Note: link},
		rule{Name: "file_data", AnySpelling: true, Deciding: true, Note: link},
		rule{Name: "file_url", AnySpelling: true, Deciding: true, Note: link},
		rule{Name: "data", Deciding: true, Note: data},
		rule{Name: "source", Note: noteOpaque, Members: stateTable},
		// A rule for these common names saves the search for other spellings.
		rule{Name: "detail"}, rule{Name: "format"}, rule{Name: "filename"},
	)
}

// mediaMember returns the rule for media or a link to media.
func mediaMember(name string, link int, members *strictjson.Table) rule {
	return rule{Name: name, AnySpelling: true, Deciding: true, Note: link, Members: members}
}

// mediaRules are the rules for media in a part. Some servers also read these members in
// the message itself.
var mediaRules = []rule{
	mediaMember("image_url", noteMediaURL, mediaMembers), mediaMember("video_url", noteMediaURL, mediaMembers), mediaMember("file", noteMediaURL, mediaMembers),
	mediaMember("image", noteMediaURL, mediaMembers), mediaMember("image_file", noteMediaURL, mediaMembers), mediaMember("document", noteMediaURL, mediaMembers),
	mediaMember("video", noteMediaURL, mediaMembers), mediaMember("input_video", noteMediaURL, mediaMembers), mediaMember("input_image", noteMediaURL, mediaMembers),
	mediaMember("images", noteMediaURL, imageMembers), mediaMember("videos", noteMediaURL, mediaMembers), mediaMember("files", noteMediaURL, mediaMembers),
	mediaMember("audio_url", noteAudioURL, audioMembers), mediaMember("input_audio", noteAudioURL, audioMembers),
	mediaMember("url", noteMediaURL, stateTable), mediaMember("file_url", noteMediaURL, stateTable), mediaMember("file_data", noteMediaURL, stateTable),
	mediaMember("image_embeds", noteMediaURL, stateTable), mediaMember("audio_embeds", noteMediaURL, stateTable),
}

// imageMembers are the members of an element of images: OpenRouter returns such a list and
// accepts it in the next call.
var imageMembers = tableWithState(mediaMember("image_url", noteMediaURL, mediaMembers), mediaMember("url", noteMediaURL, stateTable))

// partTable returns the rules for a part that may contain other parts, to depth levels
// including itself.
func partTable(depth int) *strictjson.Table {
	content := rule{Name: "content", Kinds: text | array | object, Elem: text | object, Deciding: true}
	source := []rule{
		textOption("type", noteSourceType),
		textOption("media_type", noteSourceMedia),
		textOption("data", noteSourceData),
		{Name: "url", Kinds: text, Deciding: true, Note: noteSourceURL},
	}
	if depth > 1 {
		content.Members = partTable(depth - 1)
		source = append(source, content)
	} else {
		content.Kinds, content.Elem, content.Note = text|array|object, 0, noteOpaque
		source = append(source, content)
	}
	rules := []rule{
		{Name: "type", Kinds: text, Deciding: true, Note: notePartType, Usual: textParts},
		// A rule for these common names saves the search for other spellings.
		{Name: "text"}, {Name: "id"}, {Name: "tool_use_id"}, {Name: "name"}, {Name: "input"}, {Name: "cache_control"},
		{Name: "is_error"}, {Name: "citations"}, {Name: "thinking"}, {Name: "signature"}, {Name: "data"}, {Name: "title"}, {Name: "context"},
		content,
		{Name: "source", Kinds: text | object, Deciding: true, Members: tableWithState(source...)},
		mediaMember("audio", noteAudioURL, audioMembers),
		stateMember("uuid"), // media in the cache of vLLM
	}
	if depth == maxParts { // a part may add a tool in the middle of the messages
		rules = append(rules, rule{Name: "tool", Members: table(rule{Name: "definition", Members: toolTable(0)})})
	}
	return tableWithState(append(rules, mediaRules...)...)
}
