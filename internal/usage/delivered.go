package usage

import "slices"

// delivered counts what reached the client.
type delivered struct {
	text    int64          // bytes of text
	beside  [besides]int64 // bytes of text beside the content, by place: some backends send one text in several
	media   int64          // bytes of speech and images
	names   int64          // bytes of the names of tools
	sealed  int64          // bytes of signatures of thoughts, and of encrypted ones
	block   bool           // a content block was opened, if only an empty one
	element bool           // the content of a messages answer has an element
	other   bool           // a content block was opened that is neither text nor a thought
	unseen  bool           // a content block was opened whose text does not show its cost
}

// bytes is what the output is estimated by.
func (d *delivered) bytes() int64 { return d.said() + d.names }

func (d *delivered) said() int64 { return d.text + slices.Max(d.beside[:]) }

// any reports whether content came. An empty block of text, or of a thought, is none.
func (d *delivered) any() bool {
	return d.other || d.shown() || d.names > 0 || d.sealed > 0
}

// shown reports whether something of the content itself came, not only its
// announcement.
func (d *delivered) shown() bool { return d.said() > 0 || d.media > 0 }
