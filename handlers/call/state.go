package call

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// statefulNames are the members that name something the vendor keeps for the
// account of the operator, where it may be that of another tenant. Each is noted
// in every object of a body that the gateway looks into, in any spelling, so that
// a route cannot forget one. Names that mean this in one place alone, such as
// audio.id, are rules of that place.
var statefulNames = []string{
	// Files, containers, stored answers and other objects of a vendor's account.
	"file_id", "file_ids", "file_uri", "file_uris", "s3_location", "gcs_uri", "attachments", "document_id", "document_ids",
	"container", "container_id", "previous_response_id", "response_id", "previous_message_id",
	"conversation", "conversation_id", "thread_id",
	"vector_store_id", "vector_store_ids", "tool_resources", "connector_id", "tunnel_id", "skill_id", "skills",
	"fallback_credit_token", "cached_content", "cache_id", "user_profile_id",

	// Answers that are kept to be fetched later.
	"background", "deferred",

	// Requests, slots and caches of inference servers: vLLM, SGLang, llama.cpp.
	"request_id", "rid", "id_slot", "slot_id", "session_params", "kv_transfer_params", "ec_transfer_params",
	"bootstrap_host", "bootstrap_port", "bootstrap_room",
}

// agentNames are those that choose, beside what is kept, the model or the tools
// that work on it. So they have no price, either.
var agentNames = []string{"agent_id", "assistant_id", "knowledge_base_id", "knowledge_base_ids"}

// statefulTypes are the types of content that name something kept.
var statefulTypes = []string{"container_upload", "item_reference"}

// keptMembers are the rules for these names, of which each table has one.
var keptMembers = func() *strictjson.Table {
	rules := make([]rule, 0, len(statefulNames)+len(agentNames))
	for _, name := range statefulNames {
		rules = append(rules, kept(name))
	}
	for _, name := range agentNames {
		rules = append(rules, rule{Name: name, AnySpelling: true, Note: noteAgent})
	}
	return table(rules...)
}()

// stateful makes a table of rules and of the stateful names.
func stateful(rules ...rule) *strictjson.Table { return table(rules...).With(keptMembers) }

// kept is the rule for a member that names something kept.
func kept(name string) rule { return rule{Name: name, AnySpelling: true, Note: noteState} }

// keptBelow is the rule for an object in which something kept may be named.
func keptBelow(name string, rules ...rule) rule {
	return rule{Name: name, AnySpelling: true, Members: stateful(rules...)}
}

// refuseState refuses what names something that the vendor keeps for the account
// of the operator, unless all users of the gateway share it, and a body that says
// a second time, in extra_body, what is read at the top.
func (q *request) refuseState(body []byte, shared bool) *fault.Fault {
	for _, n := range q.notes {
		switch n.Name {
		case noteOverride:
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param, "`%s` is not allowed: give it at the top of the body", param)
		case noteRouting:
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param, "`%s` is not allowed: a call names its models in `model` and `fallbacks[].model`", param)
		case noteState, noteAgent:
			if empty(body, n.Value) {
				continue
			}
		case noteDocuments:
			if inlineDocuments(n.Raw(body)) {
				continue
			}
		case notePartType:
			if !slices.Contains(statefulTypes, n.Text(body)) {
				continue
			}
		case noteURL, noteAudioURL, noteSourceURL:
			if n.Kind != strictjson.String || knownScheme(urlHead(body, n.Value)) {
				continue
			}
		case noteData, noteAudioData:
			if n.Kind != strictjson.String || !isLink(urlHead(body, n.Value)) || knownScheme(urlHead(body, n.Value)) {
				continue
			}
		default:
			continue
		}
		if !shared {
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param,
				"`%s` names something kept at the vendor, whose account the users of this gateway share: leave it out, or send the content itself; the operator allows it with `state shared`", param)
		}
	}
	return nil
}

func isFalse(body []byte, v strictjson.Value) bool { return v.Kind == strictjson.Bool && !v.Bool(body) }

// empty reports whether a value names nothing.
func empty(body []byte, v strictjson.Value) bool {
	return isFalse(body, v) || v.Kind == strictjson.Array && len(bytes.TrimSpace(body[v.Start+1:v.End-1])) == 0
}

// inlineDocuments reports whether each of the documents of a body holds its text.
// One that is a bare string, or has none of these members, may be the name of a
// document that is kept.
func inlineDocuments(raw []byte) bool {
	for _, document := range elementsOf(raw) {
		var members map[string]json.RawMessage
		if json.Unmarshal(document, &members) != nil || !slices.ContainsFunc([]string{"data", "text", "snippet", "content"}, func(name string) bool {
			return members[name] != nil
		}) {
			return false
		}
	}
	return raw[0] == '['
}

// urlHead is the beginning of a text, where a URL tells its scheme and a data URL
// its media type. JSON may write its slashes as "\/".
func urlHead(body []byte, v strictjson.Value) string {
	raw := body[v.Start+1 : v.End-1]
	return strings.ReplaceAll(string(raw[:min(len(raw), 64)]), `\/`, "/")
}

// isLink reports whether a text that may be Base64, which has no colon, is a link.
func isLink(head string) bool { return strings.Contains(head, ":") }

// knownScheme reports whether a link leads to the network, or holds the content
// itself. Other schemes are names within a vendor's account or a server's disk,
// and so is a link without one.
func knownScheme(head string) bool {
	for _, scheme := range []string{"https://", "http://", "data:"} {
		if len(head) >= len(scheme) && strings.EqualFold(head[:len(scheme)], scheme) {
			return true
		}
	}
	return false
}
