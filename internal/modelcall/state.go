package modelcall

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// stateNames are the members that name an object which the vendor stores in the account
// of the operator. The object may belong to another tenant. Each name is noted in every
// object that the gateway reads, in any spelling, so that all routes treat it alike. A name
// that only has this meaning in one object, such as audio.id, is a rule of that object.
var stateNames = []string{
	// Files, containers, stored answers and other objects of a vendor's account.
	"file_id", "file_ids", "file_uri", "file_uris", "s3_location", "gcs_uri", "attachments", "document_id", "document_ids",
	"container", "container_id", "previous_response_id", "response_id", "previous_message_id",
	"conversation", "conversation_id", "thread", "thread_id",
	"vector_store_id", "vector_store_ids", "tool_resources", "connector_id", "tunnel_id", "skill_id", "skills",
	"fallback_credit_token", "cached_content", "cache_id", "user_profile_id",

	// Requests, slots and caches of inference servers: vLLM, SGLang, llama.cpp.
	"request_id", "rid", "id_slot", "slot_id", "session_params", "kv_transfer_params", "ec_transfer_params",
	"bootstrap_host", "bootstrap_port", "bootstrap_room",
}

// agentNames are the members that name a stored object which also selects the model or the
// tools, and those that make the vendor store the answer and its usage for later. Their price is
// unknown.
var agentNames = []string{"agent_id", "assistant_id", "knowledge_base_id", "knowledge_base_ids", "background", "deferred"}

// stateTypes are the types of content that name a stored object, as [strictjson.Fold] returns them.
var stateTypes = []string{"containerupload", "itemreference"}

// stateTable has the rules for stateNames and agentNames. Each table includes it.
var stateTable = table(append(each(stateMember(""), stateNames...), each(rule{AnySpelling: true, Note: noteAgent}, agentNames...)...)...)

// tableWithState returns a table of rules and of stateTable.
func tableWithState(rules ...rule) *strictjson.Table { return table(rules...).With(stateTable) }

// stateMember returns the rule for a member that names a stored object.
func stateMember(name string) rule { return rule{Name: name, AnySpelling: true, Note: noteState} }

// stateObject returns the rule for an object that may name a stored object.
func stateObject(name string, rules ...rule) rule {
	return rule{Name: name, AnySpelling: true, Members: tableWithState(rules...)}
}

// refuseState refuses members that name an object stored in the account of the operator,
// unless shared is set. It always refuses members that choose another model or server,
// and members of extra_body that are only allowed at the top level.
func (q *Request) refuseState(body []byte, shared bool) *fault.Fault {
	for _, n := range q.notes {
		switch n.Name {
		case noteOverride:
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param, "`%s` is only allowed at the top level of the body", param)
		case noteRouting:
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param, "`%s` is not allowed: a call names its models in `model` and `fallbacks[].model`", param)
		case noteAgent:
			if isFalse(body, n.Value) || isEmpty(body, n.Value) && !isBackground(body, n) {
				continue
			}
		case noteState:
			if isEmpty(body, n.Value) {
				continue
			}
		case noteDocuments:
			if inlineDocuments(n.Raw(body)) {
				continue
			}
		case noteItemID:
			if isWholeItem(body, n) {
				continue
			}
		case noteContainer:
			if n.Kind == strictjson.Object || isEmpty(body, n.Value) { // the members of an object have their own notes
				continue
			}
		case notePartType:
			if !slices.Contains(stateTypes, strictjson.Fold(n.Text(body))) {
				continue
			}
		case noteSkills:
			if isEmpty(body, n.Value) || isLocal(body, n.Object) {
				continue
			}
		case noteAudioURLs:
			if !slices.ContainsFunc(elements(n.Raw(body)), func(raw json.RawMessage) bool { return !hasAllowedScheme(unquote(raw)) }) {
				continue
			}
		case noteMediaURL, noteAudioURL, noteSourceURL:
			if n.Kind != strictjson.String || hasAllowedScheme(urlHead(body, n.Value)) {
				continue
			}
		case noteItemResult:
			if isProgramResult(body, n) || !isForeignLink(body, n.Value) {
				continue
			}
		case noteMediaData, noteAudioData:
			if !isForeignLink(body, n.Value) {
				continue
			}
		default:
			continue
		}
		if !q.OwnsState && shared {
			continue
		}
		hasOwner := q.schema.ownable && q.refer(body, n)
		if q.OwnsState && hasOwner {
			continue
		}
		if !shared {
			return q.stateRefusal(body, n, hasOwner)
		}
	}
	return nil
}

// stateRefusal returns the error for a member that names state, or makes some. hasOwner says that the
// member could be allowed with `state own`.
func (q *Request) stateRefusal(body []byte, n strictjson.Note, hasOwner bool) *fault.Fault {
	param, words := strictjson.PathOf(body, n.Start), "`state shared`"
	if hasOwner {
		words = "`state own` or `state shared`"
	}
	if isBackground(body, n) {
		if q.OwnsState && q.schema.ownable {
			return fault.At(fault.InvalidParameter, param, "`background` must be true or false")
		}
		return fault.At(fault.InvalidParameter, param,
			"`background` makes the vendor work on without its caller: leave it out; the operator can allow it with %s", words)
	}
	f := fault.At(fault.InvalidParameter, param,
		"`%s` names an object in the vendor's account, which all users of this gateway share: leave it out, or send the content itself; the operator can allow it with %s", param, words)
	if param == "thread" {
		f.ErrorCode = "thread_unsupported_request" // Anthropic's SDKs then send the conversation itself
	}
	return f
}

// isBackground reports whether n is the member that makes a vendor work on without its caller.
func isBackground(body []byte, n strictjson.Note) bool {
	return n.Name == noteAgent && strictjson.PathOf(body, n.Start) == "background"
}

func isFalse(body []byte, v strictjson.Value) bool { return v.Kind == strictjson.Bool && !v.Bool(body) }

// isEmpty reports whether a value is false or an empty array, and so names no object.
func isEmpty(body []byte, v strictjson.Value) bool {
	return isFalse(body, v) || v.Kind == strictjson.Array && len(bytes.TrimSpace(body[v.Start+1:v.End-1])) == 0
}

// inlineDocuments reports whether each document of a body contains its text. A bare
// string, or an object without any of these members, may name a stored document.
func inlineDocuments(raw []byte) bool {
	for _, document := range elements(raw) {
		var members map[string]json.RawMessage
		if json.Unmarshal(document, &members) != nil || !slices.ContainsFunc([]string{"data", "text", "snippet", "content"}, func(name string) bool {
			return members[name] != nil
		}) {
			return false
		}
	}
	return raw[0] == '['
}

// urlHead returns the beginning of a string, which contains the scheme of a URL and the
// media type of a data URL. JSON may escape the slashes as "\/".
func urlHead(body []byte, v strictjson.Value) string {
	raw := body[v.Start+1 : v.End-1]
	return strings.ReplaceAll(string(raw[:min(len(raw), 64)]), `\/`, "/")
}

// isLink reports whether a string is a link and not Base64, which has no colon.
func isLink(head string) bool { return strings.Contains(head, ":") }

// isForeignLink reports whether a value, which should be Base64, is a link to something that is
// neither on the web nor in the body.
func isForeignLink(body []byte, v strictjson.Value) bool {
	return v.Kind == strictjson.String && isLink(urlHead(body, v)) && !hasAllowedScheme(urlHead(body, v))
}

// hasAllowedScheme reports whether a link is an HTTP URL or a data URL. A link with another
// scheme, or without one, names an object in the account of a vendor or a file of a server.
func hasAllowedScheme(head string) bool {
	for _, scheme := range []string{"https://", "http://", "data:"} {
		if len(head) >= len(scheme) && strings.EqualFold(head[:len(scheme)], scheme) {
			return true
		}
	}
	return false
}
