package usage

import "bytes"

// Request has the counts of a body, in either dialect, by which the input of a call is
// estimated.
type Request struct {
	TextBytes  int64 // UTF-8 bytes of prompts, messages and tools
	ImageLinks int64 // http or https links in members for images
}

// ReadRequest reads the body of a request.
func ReadRequest(body []byte) Request {
	var parts parts
	var d document
	d.parts = &parts
	d.reset()
	d.place = requestBody
	d.write(body)
	return Request{d.delivered.bytes(), parts.imageLinks}
}

// parts are the parts of the content of a request that are being read. A part may contain
// others.
type parts struct {
	imageLinks int64
	open       [maxDepth]contentPart
	depth      int
}

// contentPart is one part.
type contentPart struct {
	image bool  // the type is image
	links int64 // http or https links in the sources
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

// link counts a string in a member for links if it begins with http: or https:.
func (p *parts) link(at place, text []byte) {
	switch {
	case !hasScheme(text, "http:") && !hasScheme(text, "https:"):
	case at == requestImage:
		p.imageLinks++
	case p.depth > 0:
		p.open[p.depth-1].links++
	}
}

func hasScheme(text []byte, scheme string) bool {
	return len(text) >= len(scheme) && bytes.EqualFold(text[:len(scheme)], []byte(scheme))
}
