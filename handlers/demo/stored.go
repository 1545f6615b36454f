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
	items         map[string]entry // by id
}

const maxStored = 10_000

// storedResponse is a response with what belongs to it.
type storedResponse struct {
	response
	messages  []message // of the turn, the answer included
	ready     time.Time // when a background response ends
	cancelled bool
}

// conversation is a list of items.
type conversation struct {
	created  int64
	metadata json.RawMessage
	items    []entry
}

func newVault(pace time.Duration) *vault {
	return &vault{pace: pace, responses: make(map[string]*storedResponse), conversations: make(map[string]*conversation), items: make(map[string]entry)}
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
	if err := q.vault.resolve(q.own); err != nil {
		return err
	}
	if id := q.PreviousResponseID; id != "" {
		earlier := q.vault.responses[id]
		if earlier == nil {
			return invalid("previous_response_id", "Previous response with id '%s' not found.", id)
		}
		q.Messages = slices.Clone(earlier.messages)
	}
	if id := q.conversationID(); id != "" {
		earlier := q.vault.conversations[id]
		if earlier == nil {
			return notFound("Conversation", id)
		}
		q.Messages = append(q.Messages, messagesOf(earlier.items)...)
	}
	return nil
}

// resolve replaces references to items by the items. The mutex is held.
func (v *vault) resolve(items []entry) error {
	for i, e := range items {
		if e.whole == nil {
			item, found := v.items[e.id]
			if !found {
				return notFound("Item", e.id)
			}
			items[i] = item
		}
	}
	return nil
}

// remember keeps items for references to them. An item that a client sends again changes none. The mutex is
// held.
func (v *vault) remember(items []entry) {
	for _, e := range items {
		if _, known := v.items[e.id]; !known && len(v.items) < maxStored {
			v.items[e.id] = e
		}
	}
}

// keep stores a response.
func (s *response) keep() {
	v := s.vault
	if v == nil || s.Store != nil && !*s.Store || len(v.responses) >= maxStored {
		return
	}
	answer := entry{s.itemID, s.item("completed", s.output.text()), message{Role: "assistant", Content: content{{Type: "text", Text: s.output.text()}}}}
	turn := append(slices.Clone(s.own), answer)
	kept := &storedResponse{response: *s, messages: append(slices.Clone(s.Messages), answer.message)}
	if s.runsLater() {
		kept.ready = time.Now().Add(s.simulation.slow + time.Duration(len(s.output.pieces))*v.pace)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.responses[s.id] = kept
	v.remember(turn)
	if c := v.conversations[s.conversationID()]; c != nil {
		c.items = append(c.items, turn...)
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
		list, err := listItems(stored.own, r.URL.Query())
		return &answer{whole: list}, err
	case "POST cancel":
		if !stored.runsLater() {
			return nil, invalid("", "Cannot cancel a synchronous response.")
		}
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
		Items    []json.RawMessage `json:"items"`
		Metadata json.RawMessage   `json:"metadata"`
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
	var items []entry
	for _, raw := range sent.Items {
		e, err := readItem(raw)
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.resolve(items); err != nil {
		return nil, err
	}
	v.remember(items)
	id := path[0]
	if id == "" {
		if r.Method != http.MethodPost || len(v.conversations) >= maxStored {
			return nil, errNoRoute
		}
		id = newID("conv_")
		v.conversations[id] = &conversation{created: time.Now().Unix(), metadata: sent.Metadata, items: items}
		return &answer{whole: v.conversations[id].body(id)}, nil
	}
	c := v.conversations[id]
	if c == nil {
		return nil, notFound("Conversation", id)
	}
	at := -1
	if len(path) == 3 {
		if at = slices.IndexFunc(c.items, func(e entry) bool { return e.id == path[2] }); at < 0 {
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
		list, err := listItems(c.items, r.URL.Query())
		return &answer{whole: list}, err
	case "POST items":
		c.items = append(c.items, items...)
		return &answer{whole: listOf(items, false)}, nil
	case "GET items/{item}":
		return &answer{whole: c.items[at].whole}, nil
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
