package modelcall

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/strictjson"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// Reference is the id of an object in a body that the vendor must have stored.
type Reference struct {
	Param string // where it is
	Kind  usage.ObjectKind
	ID    string
}

// itemListMembers are the members of the bodies of /v1/conversations and of the routes below it.
var itemListMembers = tableWithState(append(slices.Clip(optionMembers),
	rule{Name: "items", Kinds: array | null, Elem: object, Deciding: true, Members: itemTable},
)...)

// The paths of references. In all other places, and in other spellings of the names, an id is refused.
var (
	itemPath      = regexp.MustCompile(`^(input|items)\[\d+\]\.(id|type|container_id)$`)
	containerPath = regexp.MustCompile(`^tools\[\d+\]\.container$`)
)

// refer adds the object that n names to the references. It returns false if n is at a place where the
// gateway knows no owner, or not in the form that the vendor documents.
func (q *Request) refer(body []byte, n strictjson.Note) bool {
	param, kind, id := strictjson.PathOf(body, n.Start), usage.ItemObject, ""
	switch n.Name {
	case noteAgent:
		q.Background = param == "background" && n.Kind == strictjson.Bool && n.Bool(body)
		return q.Background
	case noteState:
		switch {
		case param == "previous_response_id" && n.Kind == strictjson.String:
			kind, id = usage.ResponseObject, n.Text(body)
		case param == "conversation" && n.Kind == strictjson.String:
			kind, id = usage.ConversationObject, n.Text(body)
		case param == "conversation" && n.Kind == strictjson.Object:
			var object struct {
				ID string `json:"id"`
			}
			if strictjson.Decode(n.Raw(body), &object) != nil {
				return false
			}
			kind, id, param = usage.ConversationObject, object.ID, "conversation.id"
		case itemPath.MatchString(param) && n.Kind == strictjson.String:
			kind, id = usage.ContainerObject, n.Text(body)
		}
	case noteContainer:
		if containerPath.MatchString(param) && n.Kind == strictjson.String {
			kind, id = usage.ContainerObject, n.Text(body)
		}
	case noteItemID:
		if itemPath.MatchString(param) {
			id = n.Text(body)
		}
	case notePartType: // of an item_reference, whose id has a note of its own
		return itemPath.MatchString(param) && isItemReference(body, n)
	}
	if id == "" {
		return false
	}
	q.References = append(q.References, Reference{Param: param, Kind: kind, ID: id})
	return true
}

// isItemReference reports whether the item with the type n is a reference as the vendor documents it:
// it has the members type and id, and no others.
func isItemReference(body []byte, n strictjson.Note) bool {
	var raw json.RawMessage
	if json.NewDecoder(bytes.NewReader(body[n.Object:])).Decode(&raw) != nil {
		return false
	}
	var item struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	return strictjson.Decode(raw, &item) == nil && item.Type == "item_reference" && item.ID != ""
}

// Stores reports whether the vendor stores the answer, so that later calls can name it.
func (q *Request) Stores(body []byte) bool {
	return q.Background || !isFalse(body, q.values[slotStore])
}
