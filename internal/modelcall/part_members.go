package modelcall

import (
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

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

// maxParts is the depth to which parts of content are read. A page in a document in the
// result of a tool in a message has depth four.
const maxParts = 4

// contentPart is the table for a part of the content of a message, in either dialect.
var contentPart = partTable(maxParts)

// The members of an object with media.
var (
	mediaMembers = mediaTable(noteMediaURL, noteMediaData)
	audioMembers = mediaTable(noteAudioURL, noteAudioData)
)

func mediaTable(link, data int) *strictjson.Table {
	// A rule for these common names saves the search for other spellings.
	rules := append(each(rule{}, "detail", "format", "filename"), media(link, nil, "file_data", "file_url")...)
	return tableWithState(append(rules,
		rule{Name: "url", Deciding: true, Note: link},
		rule{Name: "data", Deciding: true, Note: data},
		rule{Name: "source", Note: noteOpaque, Members: stateTable},
	)...)
}

// media returns the rules for members that contain media or a link to media.
func media(note int, members *strictjson.Table, names ...string) []rule {
	return each(rule{AnySpelling: true, Deciding: true, Note: note, Members: members}, names...)
}

// mediaRules are the rules for media in a part. Some servers also read these members in
// the message itself.
var mediaRules = slices.Concat(
	media(noteMediaURL, mediaMembers,
		"image_url", "video_url", "file", "image", "image_file", "document", "video", "input_video", "input_image", "videos", "files"),
	media(noteMediaURL, imageMembers, "images"),
	media(noteAudioURL, audioMembers, "audio_url", "input_audio"),
	media(noteMediaURL, stateTable, "url", "file_url", "file_data", "image_embeds", "audio_embeds"),
)

// imageMembers are the members of an element of images: OpenRouter returns such a list and
// accepts it in the next call.
var imageMembers = tableWithState(append(media(noteMediaURL, mediaMembers, "image_url"), media(noteMediaURL, stateTable, "url")...)...)

// partTable returns the rules for a part that may contain other parts, to depth levels
// including itself.
func partTable(depth int) *strictjson.Table {
	content := rule{Name: "content", Kinds: text | array | object, Deciding: true}
	if depth > 1 {
		content.Elem, content.Members = text|object, partTable(depth-1)
	} else {
		content.Note = noteOpaque
	}
	source := tableWithState(
		textOption("type", noteSourceType),
		textOption("media_type", noteSourceMedia),
		textOption("data", noteSourceData),
		rule{Name: "url", Kinds: text, Deciding: true, Note: noteSourceURL},
		content,
	)
	// A rule for these common names saves the search for other spellings.
	rules := each(rule{}, "text", "id", "tool_use_id", "name", "input", "cache_control",
		"is_error", "citations", "thinking", "signature", "data", "title", "context")
	rules = append(rules,
		rule{Name: "type", Kinds: text, Deciding: true, Note: notePartType, Usual: textParts},
		content,
		rule{Name: "source", Kinds: text | object, Deciding: true, Members: source},
		stateMember("uuid"), // media in the cache of vLLM
	)
	if depth == maxParts { // a part may add a tool in the middle of the messages
		rules = append(rules, rule{Name: "tool", Members: table(rule{Name: "definition", Members: toolTable(0)})})
	}
	return tableWithState(slices.Concat(rules, media(noteAudioURL, audioMembers, "audio"), mediaRules)...)
}
