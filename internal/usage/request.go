package usage

import "bytes"

// Request is what the body of a request, of either dialect, holds: that by which the
// input of a call is estimated when its backend reports none.
type Request struct {
	TextBytes  int64 // UTF-8 bytes of prompts, of what was said, and of tools
	ImageLinks int64 // links where only an image can be: http or https
}

// ReadRequest reads a body.
func ReadRequest(body []byte) Request {
	var parts parts
	var d document
	d.parts = &parts
	d.reset()
	d.place = asked
	d.write(body)
	return Request{d.delivered.bytes(), parts.imageLinks}
}

// parts follows the parts of the content of a request, which may hold others.
type parts struct {
	imageLinks int64
	open       [maxDepth]contentPart
	depth      int
}

// contentPart is one of them.
type contentPart struct {
	image bool  // it says that it is an image
	links int64 // of its sources
}

func (p *parts) begin() {
	p.open[p.depth] = contentPart{}
	p.depth++
}

func (p *parts) end() {
	p.depth--
	if last := p.open[p.depth]; last.image {
		p.imageLinks += last.links
	}
}

// link takes the beginning of a string at a place of links.
func (p *parts) link(at place, text []byte) {
	switch {
	case !hasScheme(text, "http:") && !hasScheme(text, "https:"):
	case at == askedImage:
		p.imageLinks++
	case p.depth > 0:
		p.open[p.depth-1].links++
	}
}

func hasScheme(text []byte, scheme string) bool {
	return len(text) >= len(scheme) && bytes.EqualFold(text[:len(scheme)], []byte(scheme))
}
