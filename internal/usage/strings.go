package usage

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// This file is what a document does with its strings: names lead on in the
// table of places, types are compared, text is counted and forgotten.

func (d *document) openString() {
	d.state = inString
	d.token.reset()
}

// part takes some bytes of a string that goes on.
func (d *document) part(p []byte) {
	switch {
	case d.naming || d.place.word() || d.place.counts():
		d.token.add(p)
	case d.place.links():
		d.takeLink(p)
	default:
		d.deliver(len(p))
	}
}

// takeLink takes a part of a link, of which the first one tells where it leads.
func (d *document) takeLink(p []byte) {
	if d.token.n == 0 {
		d.parts.link(d.place, p)
	}
	d.token.spoil()
}

// endString takes the last bytes of a string.
func (d *document) endString(p []byte) {
	switch {
	case d.naming:
		d.naming = false
		name := d.token.with(p)
		d.place = d.stack[d.depth-1].place.member(name)
		d.state = atColon
		if d.place == toolUses {
			d.report.tool.set(name[:len(name)-len(usesSuffix)])
		}
	case d.skip > 0:
		d.state = inSkipped
	case d.place.word():
		d.takeWord(d.token.with(p))
		d.endValue()
	case d.place.counts(): // some servers put their figures in quotes
		if text := d.token.with(p); len(bytes.Trim(text, "0123456789")) == 0 {
			d.takeCount(countOf(text))
		}
		d.endValue()
	case d.place.links():
		d.takeLink(p)
		d.endValue()
	default:
		d.deliver(len(p))
		d.endValue()
	}
}

// announce takes the type of an event, from its name or from its data.
func (d *document) announce(kind []byte) {
	switch string(kind) {
	case "error":
		d.fail()
	case "message_stop":
		d.stopped = true
	}
}

// takeWord takes a string at a place of words. It is nil when it is too long or
// has an escape.
func (d *document) takeWord(word []byte) {
	r := &d.report
	switch d.place {
	case model: // every chunk of a chat has one
		if string(word) != string(r.model.bytes()) {
			r.model.set(word)
		}
	case kind:
		d.announce(word)
	case stopReason:
		r.refused = string(word) == "refusal"
	case tier, speed, geo:
		if r.passes == nil || !r.passes.open { // an iteration does not say it of the call
			r.served(d.place).set(word)
		}
	case blockKind:
		r.ran = string(word) == "server_tool_use"
		kind := string(word)
		d.delivered.other = d.delivered.other || kind != "text" && kind != "thinking"
		d.delivered.unseen = d.delivered.unseen || kind != "text" && kind != "tool_use"
	case blockName:
		r.tool.set(word)
		d.delivered.names += int64(len(word))
	case passKind:
		r.passes.kind = passKindOf(word)
	case passModel:
		r.passes.model.set(word)
	case askedType:
		d.parts.open[d.parts.depth-1].image = string(word) == "image"
	}
}

func (d *document) fail() {
	d.failed = true
	d.saw |= sawFault
}

// deliver counts n bytes of a string's value where it stands.
func (d *document) deliver(n int) {
	if n == 0 || d.naming {
		return
	}
	switch d.place {
	case text, blocks, askedText, toolInput:
		d.delivered.text += int64(n)
	case reasoning, reasoningContent, reasoningDetails, otherText:
		d.delivered.beside[d.place-reasoning] += int64(n)
	case toolName:
		d.delivered.names += int64(n)
	case signature:
		d.delivered.sealed += int64(n)
	case mediaData:
		d.delivered.media += int64(n)
	case fault:
		d.fail()
	case finishReason:
		d.choice.finished = true
	}
}

// unicode takes a digit of \uXXXX and counts the UTF-8 bytes of the whole.
// Half a surrogate pair counts two, so that a pair counts four.
func (d *document) unicode(digit uint8) {
	e := &d.escape
	e.code = e.code<<4 | uint16(digit)
	if e.digits--; e.digits > 0 {
		return
	}
	d.state = inString
	switch {
	case e.code < 0x80:
		d.deliver(1)
	case e.code < 0x800, 0xd800 <= e.code && e.code < 0xe000:
		d.deliver(2)
	default:
		d.deliver(3)
	}
}

// token gathers a short string that may arrive in parts. One that is too long,
// or has an escape, is none that is looked for.
type token struct {
	buf [64]byte
	n   uint8 // bytes gathered; more than fit: spoilt
}

func (t *token) reset() { t.n = 0 }
func (t *token) spoil() { t.n = uint8(len(t.buf) + 1) }

func (t *token) add(p []byte) {
	if int(t.n)+len(p) > len(t.buf) {
		t.spoil()
		return
	}
	t.n += uint8(copy(t.buf[t.n:], p))
}

// with returns the string that ends with p; nil when it is spoilt.
func (t *token) with(p []byte) []byte {
	if t.n == 0 {
		return p
	}
	t.add(p)
	if int(t.n) > len(t.buf) {
		return nil
	}
	return t.buf[:t.n]
}

// plain returns how many bytes of p come before its first quote or backslash.
// It looks at eight at a time: most strings are short, and most calls are this.
func plain(p []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(p); i += 8 {
		word := binary.LittleEndian.Uint64(p[i:])
		quote, slash := word^ones*'"', word^ones*'\\'
		if hit := ((quote-ones)&^quote | (slash-ones)&^slash) & highs; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(p) && p[i] != '"' && p[i] != '\\'; i++ {
	}
	return i
}

func unhex(c byte) (uint8, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}
