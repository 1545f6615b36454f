package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// vault keeps responses and conversations in memory, at most maxStored of each. A vendor keeps them for
// all callers of one account alike, and so does the vault.
type vault struct {
	mu            sync.Mutex
	pace          time.Duration
	responses     map[string]*storedResponse
	conversations map[string]*conversation
	texts         map[string]message // by the id of the item
}

const maxStored = 10_000

// storedResponse is a response with what belongs to it.
type storedResponse struct {
	response
	messages  []message // of the turn, the answer included
	input     []object  // items
	ready     time.Time // when a background response ends
	cancelled bool
}

// conversation is a list of items.
type conversation struct {
	created  int64
	metadata json.RawMessage
	items    []object
	messages []message
}

func newVault(pace time.Duration) *vault {
	return &vault{pace: pace, responses: make(map[string]*storedResponse), conversations: make(map[string]*conversation), texts: make(map[string]message)}
}

// notFound is the error for an object that does not exist.
func notFound(what, id string) *refusal {
	return &refusal{status: http.StatusNotFound, message: fmt.Sprintf("%s with id '%s' not found.", what, id)}
}

// conversationID returns the id in the member conversation, or "".
func (q *request) conversationID() string {
	var id string
	if json.Unmarshal(q.Conversation, &id) == nil {
		return id
	}
	var object struct{ ID string }
	_ = json.Unmarshal(q.Conversation, &object)
	return object.ID
}

// readEarlier adds the earlier turns that a request names.
func (q *request) readEarlier() error {
	if q.vault == nil {
		return nil
	}
	q.vault.mu.Lock()
	defer q.vault.mu.Unlock()
	for i := range q.Messages {
		if id := q.Messages[i].reference; id != "" {
			earlier, found := q.vault.texts[id]
			if !found {
				return notFound("Item", id)
			}
			q.Messages[i] = earlier
		}
	}
	if id := q.PreviousResponseID; id != "" {
		earlier := q.vault.responses[id]
		if earlier == nil {
			return invalid("previous_response_id", "Previous response with id '%s' not found.", id)
		}
		q.Messages = append(slices.Clone(earlier.messages), q.Messages...)
	}
	if id := q.conversationID(); id != "" {
		earlier := q.vault.conversations[id]
		if earlier == nil {
			return notFound("Conversation", id)
		}
		q.Messages = append(slices.Clone(earlier.messages), q.Messages...)
	}
	return nil
}

// inputItems returns the items of the input with ids, for input_items.
func (q *request) inputItems() (items []object) {
	for _, m := range q.own {
		items = append(items, object{
			"id", newID("msg_"), "type", "message", "role", m.Role, "status", "completed",
			"content", []object{{"type", "input_text", "text", m.Content.text()}},
		})
	}
	return items
}

// remember keeps the texts of items for item references. The mutex is held.
func (v *vault) remember(items []object, messages []message) {
	for i, o := range items {
		if len(v.texts) < maxStored {
			v.texts[o[1].(string)] = messages[i]
		}
	}
}

// keep stores a response.
func (s *response) keep() {
	v := s.vault
	if v == nil || s.Store != nil && !*s.Store || len(v.responses) >= maxStored {
		return
	}
	answer := message{Role: "assistant", Content: content{{Type: "text", Text: s.output.text()}}}
	kept := &storedResponse{response: *s, messages: append(slices.Clone(s.Messages), answer), input: s.inputItems()}
	if s.runsLater() {
		kept.ready = time.Now().Add(s.simulation.slow + time.Duration(len(s.output.pieces))*v.pace)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.responses[s.id] = kept
	v.remember(append(slices.Clone(kept.input), s.item("completed", "")), append(slices.Clone(s.own), answer))
	if c := v.conversations[s.conversationID()]; c != nil {
		c.items = append(append(c.items, kept.input...), s.item("completed", s.output.text()))
		c.messages = kept.messages
	}
}

// now returns the response as it is now.
func (s *storedResponse) now() object {
	switch {
	case s.cancelled:
		return s.body("cancelled", nil, nil)
	case time.Now().Before(s.ready):
		return s.body("in_progress", nil, nil)
	}
	return s.body(s.status(), []object{s.item("completed", s.output.text())}, s.usage())
}

// listOf returns a list of objects.
func listOf(items []object) object {
	first, last := any(nil), any(nil)
	if len(items) > 0 {
		first, last = items[0][1], items[len(items)-1][1]
	}
	return object{"object", "list", "data", append([]object{}, items...), "first_id", first, "last_id", last, "has_more", false}
}

// serve answers a request for a stored object. It returns false if the path is none of them.
func (v *vault) serve(s *sender, r *http.Request) (served bool, err error) {
	var a *answer
	if at := strings.LastIndex(r.URL.Path, "/v1/responses/"); at >= 0 {
		a, err = v.response(r, strings.Split(r.URL.Path[at+len("/v1/responses/"):], "/"))
	} else if at := strings.LastIndex(r.URL.Path, "/v1/conversations"); at >= 0 {
		a, err = v.conversation(r, strings.Split(strings.TrimPrefix(r.URL.Path[at+len("/v1/conversations"):], "/"), "/"))
	} else {
		return false, nil
	}
	if refused, ok := err.(*refusal); ok { //nolint:errorlint // it is never wrapped
		s.refuse(refused)
		return true, nil
	}
	if err == nil {
		err = s.answer(a)
	}
	return true, err
}

// errNoRoute is the error for another method or path.
var errNoRoute = &refusal{status: http.StatusMethodNotAllowed, message: "This path does not accept this method."}

// response answers /v1/responses/{id} and the paths below.
func (v *vault) response(r *http.Request, path []string) (*answer, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	stored := v.responses[path[0]]
	if stored == nil {
		return nil, notFound("Response", path[0])
	}
	switch r.Method + " " + strings.Join(path[1:], "/") {
	case "GET ":
		if r.URL.Query().Get("stream") == "true" {
			again := stored.response
			again.after, _ = strconv.Atoi(r.URL.Query().Get("starting_after"))
			if r.URL.Query().Get("starting_after") == "" {
				again.after = -1
			}
			return &answer{events: again.stream, pieces: len(again.output.pieces)}, nil
		}
		return &answer{whole: stored.now()}, nil
	case "GET input_items":
		return &answer{whole: listOf(stored.input)}, nil
	case "POST cancel":
		stored.cancelled = stored.cancelled || time.Now().Before(stored.ready)
		return &answer{whole: stored.now()}, nil
	case "DELETE ":
		delete(v.responses, path[0])
		return &answer{whole: object{"id", path[0], "object", "response", "deleted", true}}, nil
	}
	return nil, errNoRoute
}

// conversation answers /v1/conversations and the paths below.
func (v *vault) conversation(r *http.Request, path []string) (*answer, error) {
	var sent struct {
		Items    []item          `json:"items"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
		if err != nil {
			return nil, err
		}
		if len(body) > 0 && json.Unmarshal(body, &sent) != nil {
			return nil, invalid("", "The body is not a JSON object of this endpoint.")
		}
	}
	q := new(request)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, i := range sent.Items {
		if i.Type == "item_reference" {
			q.own = append(q.own, v.texts[i.ID])
			continue
		}
		q.own = append(q.own, message{Role: i.Role, Content: asText(i.Content)})
	}
	items := q.inputItems()
	v.remember(items, q.own)
	id := path[0]
	if id == "" {
		if r.Method != http.MethodPost || len(v.conversations) >= maxStored {
			return nil, errNoRoute
		}
		id = newID("conv_")
		v.conversations[id] = &conversation{created: time.Now().Unix(), metadata: sent.Metadata, items: items, messages: q.own}
		return &answer{whole: v.conversations[id].body(id)}, nil
	}
	c := v.conversations[id]
	if c == nil {
		return nil, notFound("Conversation", id)
	}
	at := -1
	if len(path) == 3 {
		if at = slices.IndexFunc(c.items, func(o object) bool { return o[1] == path[2] }); at < 0 {
			return nil, notFound("Item", path[2])
		}
		path[2] = "{item}"
	}
	switch r.Method + " " + strings.Join(path[1:], "/") {
	case "GET ":
	case "POST ":
		c.metadata = sent.Metadata
	case "DELETE ":
		delete(v.conversations, id)
		return &answer{whole: object{"id", id, "object", "conversation.deleted", "deleted", true}}, nil
	case "GET items":
		return &answer{whole: listOf(c.items)}, nil
	case "POST items":
		c.items, c.messages = append(c.items, items...), append(c.messages, q.own...)
		return &answer{whole: listOf(items)}, nil
	case "GET items/{item}":
		return &answer{whole: c.items[at]}, nil
	case "DELETE items/{item}":
		c.items = slices.Delete(c.items, at, at+1)
	default:
		return nil, errNoRoute
	}
	return &answer{whole: c.body(id)}, nil
}

func (c *conversation) body(id string) object {
	metadata := any(object{})
	if len(c.metadata) > 0 {
		metadata = c.metadata
	}
	return object{"id", id, "object", "conversation", "created_at", c.created, "metadata", metadata}
}
