package call

import "github.com/caddy-modelgate/modelgate/internal/strictjson"

// textParts are the types of content that hold nothing but inline text, or whose
// media stand in members of their own, which are noted.
var textParts = []string{
	"text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "image_url", "input_audio", "file",
	"search_result", "refusal", "tool_reference", "input_text", "output_text", "input_image", "input_file", "audio_url",
	"server_tool_use", "web_search_tool_result", "web_search_result", "web_search_tool_result_error",
	"web_fetch_tool_result", "web_fetch_result", "web_fetch_tool_result_error", "code_execution_tool_result", "code_execution_result",
	"bash_code_execution_tool_result", "bash_code_execution_result", "text_editor_code_execution_tool_result",
	"tool_search_tool_result", "tool_search_tool_search_result", "mcp_tool_use", "mcp_tool_result", "advisor_tool_result",
	"compaction", "reasoning", "reasoning.text", "summary_text",
}

// maxParts is how deeply parts of content are looked into: a page in a document
// in the result of a tool in a message is four.
const maxParts = 4

// contentPart is the table for one part of the content of a message, in either
// dialect.
var contentPart = partFields(maxParts)

// The members of media, where these are no text.
var (
	mediaMembers = mediaFields(noteURL, noteData)
	audioMembers = mediaFields(noteAudioURL, noteAudioData)
)

func mediaFields(link, data int) *strictjson.Table {
	return stateful(
		rule{Name: "url", Deciding: true, Note: link},
		rule{Name: "file_data", AnySpelling: true, Deciding: true, Note: link},
		rule{Name: "file_url", AnySpelling: true, Deciding: true, Note: link},
		rule{Name: "data", Deciding: true, Note: data},
		rule{Name: "source", Note: noteDeep, Members: keptMembers},
		rule{Name: "detail"}, rule{Name: "format"}, rule{Name: "filename"}, // found, not folded
	)
}

// medium is the rule for media, or for a link to them.
func medium(name string, link int, members *strictjson.Table) rule {
	return rule{Name: name, AnySpelling: true, Deciding: true, Note: link, Members: members}
}

// mediaRules are the rules for media in a part, and beside the content of a message,
// from where some servers take them, too.
var mediaRules = []rule{
	medium("image_url", noteURL, mediaMembers), medium("video_url", noteURL, mediaMembers), medium("file", noteURL, mediaMembers),
	medium("image", noteURL, mediaMembers), medium("image_file", noteURL, mediaMembers), medium("document", noteURL, mediaMembers),
	medium("video", noteURL, mediaMembers), medium("input_video", noteURL, mediaMembers), medium("input_image", noteURL, mediaMembers),
	medium("images", noteURL, imageMembers), medium("videos", noteURL, mediaMembers), medium("files", noteURL, mediaMembers),
	medium("audio_url", noteAudioURL, audioMembers), medium("input_audio", noteAudioURL, audioMembers),
	medium("url", noteURL, keptMembers), medium("file_url", noteURL, keptMembers), medium("file_data", noteURL, keptMembers),
	medium("image_embeds", noteURL, keptMembers), medium("audio_embeds", noteURL, keptMembers),
}

// imageMembers are those of an image in the list that OpenRouter answers with, and
// takes back.
var imageMembers = stateful(medium("image_url", noteURL, mediaMembers), medium("url", noteURL, keptMembers))

// partFields are the rules for a part that may hold others, depth levels with
// itself.
func partFields(depth int) *strictjson.Table {
	content := rule{Name: "content", Kinds: text | array | object, Elem: text | object, Deciding: true}
	source := []rule{
		option("type", noteSourceType),
		option("media_type", noteSourceMedia),
		option("data", noteSourceData),
		{Name: "url", Kinds: text, Deciding: true, Note: noteSourceURL},
	}
	if depth > 1 {
		content.Members = partFields(depth - 1)
		source = append(source, content)
	} else {
		content.Kinds, content.Elem, content.Note = text|array|object, 0, noteDeep
		source = append(source, content)
	}
	rules := []rule{
		{Name: "type", Kinds: text, Deciding: true, Note: notePartType, Usual: textParts},
		// These are found, not folded.
		{Name: "text"}, {Name: "id"}, {Name: "tool_use_id"}, {Name: "name"}, {Name: "input"}, {Name: "cache_control"},
		{Name: "is_error"}, {Name: "citations"}, {Name: "thinking"}, {Name: "signature"}, {Name: "data"}, {Name: "title"}, {Name: "context"},
		content,
		{Name: "source", Kinds: text | object, Deciding: true, Members: stateful(source...)},
		medium("audio", noteAudioURL, audioMembers),
		kept("uuid"), // of media that vLLM has cached
	}
	if depth == maxParts { // it adds a tool in the middle of the messages
		rules = append(rules, rule{Name: "tool", Members: table(rule{Name: "definition", Members: toolFields(0)})})
	}
	return stateful(append(rules, mediaRules...)...)
}
