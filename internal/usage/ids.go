package usage

// ObjectKind is the kind of an object whose id is in an answer.
type ObjectKind uint8

// The kinds of objects.
const (
	ResponseObject ObjectKind = iota
	ItemObject
	ConversationObject
	ContainerObject
)

// ObjectID is the id of an object that the vendor keeps.
type ObjectID struct {
	Kind ObjectKind
	ID   string
}

// objectIDs collects the ids in an answer, each once.
type objectIDs struct {
	top    ObjectKind // of the document
	list   bool       // the document may be a list of items
	known  map[ObjectID]bool
	fresh  []ObjectID // not taken yet
	status string     // of the response; empty: not reported
}

// maxObjects bounds the ids of one answer. Further ids are not collected, so nobody can name their
// objects.
const maxObjects = 10_000

// CollectIDs makes the Reader collect the ids of responses, items, conversations and containers. Top is
// the kind of the document itself; list says that the document may be a list of items. It must be
// called before Write. The ids of a compressed answer are not collected in time to be recorded before
// the answer is passed on.
func (r *Reader) CollectIDs(top ObjectKind, list bool) {
	r.events.ids = &objectIDs{top: top, list: list, known: make(map[ObjectID]bool)}
	r.events.reset()
}

// TakeIDs returns the ids that were read since the previous call.
func (r *Reader) TakeIDs() []ObjectID {
	ids := r.events.ids
	if ids == nil || len(ids.fresh) == 0 {
		return nil
	}
	fresh := ids.fresh
	ids.fresh = nil
	return fresh
}

// Status returns the status of the response, such as `queued` or `completed`, if ids are collected. It
// is empty before one was read.
func (r *Reader) Status() string {
	if r.events.ids == nil {
		return ""
	}
	return r.events.ids.status
}

// objectToken handles the id or the status of an object. An id that is too long or has an escape is
// not collected.
func (d *document) objectToken(p place, word []byte) {
	if d.ids == nil || len(word) == 0 || len(word) > len(d.token.buf) {
		return
	}
	id := ObjectID{ID: string(word)}
	switch p {
	case responseStatus:
		d.ids.status = id.ID
		return
	case objectID:
		id.Kind = ResponseObject
		if d.depth == 1 {
			id.Kind = d.ids.top
		}
	case itemID:
		id.Kind = ItemObject
	case conversationID:
		id.Kind = ConversationObject
	case containerID:
		id.Kind = ContainerObject
	}
	if !d.ids.known[id] && len(d.ids.known) < maxObjects {
		d.ids.known[id] = true
		d.ids.fresh = append(d.ids.fresh, id)
	}
}
