package usage

import "slices"

// delivered counts what was delivered to the caller.
type delivered struct {
	text         int64                  // bytes of text
	reasoning    [reasoningPlaces]int64 // bytes of reasoning and of text in unknown members, by place; some backends send one text in several
	eventItems   int64                  // bytes of text in the items of the current event of a response
	items        int64                  // the same of the previous events
	speech       int64                  // bytes of speech, and of links to it
	names        int64                  // bytes of the names of tools
	signatures   int64                  // bytes of the signatures of thoughts, and of encrypted thoughts
	contentBlock bool                   // a content block was opened, even an empty one
	hasElement   bool                   // the content of a messages answer has an element
	other        bool                   // a content block was opened that is neither text nor a thought, or the item of a backend's tool ended
	unseen       bool                   // a content block was opened whose cost cannot be estimated from its text
	images       int32                  // images, and links to them
	searches     int32                  // search units of a rerank answer, as reported
}

// bytes returns the number of bytes by which the output is estimated. A response sends each text up
// to three times: in parts, in the event that ends its item and in the last event. Some backends
// leave out the first or the second.
func (d *delivered) bytes() int64 {
	return max(d.textBytes()+d.names, d.eventItems, d.items)
}

// endEvent ends an event of a response. done is set if the event ends an item. The last event has
// all items.
func (d *delivered) endEvent(done bool) {
	if done {
		d.eventItems += d.items
	}
	d.items, d.eventItems = max(d.items, d.eventItems), 0
}

func (d *delivered) textBytes() int64 { return d.text + slices.Max(d.reasoning[:]) }

// any reports whether content was delivered. An empty block of text or of a thought is not
// content.
func (d *delivered) any() bool {
	return d.other || d.shown() || d.names > 0 || d.signatures > 0
}

// shown reports whether any of the content itself was delivered, not only the start of a
// block or the name of a tool.
func (d *delivered) shown() bool { return d.bytes() > d.names || d.media() }

func (d *delivered) media() bool { return d.speech > 0 || d.images > 0 }

// earlier is what a caller has read in earlier streams of the same text. Vendors number the events of
// a response, so a text that comes again is known by its event.
type earlier struct {
	bytes    int64 // of the text
	through  int64 // the number of the event with the last of them
	event    int64 // the highest number in this stream
	repeated int64 // bytes of text in this stream that had come before
}

// repeats reports whether the current event came in an earlier stream.
func (e *earlier) repeats() bool { return e.through > 0 && e.event <= e.through }
