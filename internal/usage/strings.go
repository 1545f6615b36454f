package usage

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
)

// This file parses the strings of a document. A name selects a place in the table, a type is
// compared, and of text only the bytes are counted.

func (d *document) openString() {
	d.state = inString
	d.token.reset()
}

// continueString handles bytes of a string that does not end in them.
func (d *document) continueString(p []byte) {
	switch {
	case d.inName || d.place.isToken() || d.place.isNumber():
		d.token.add(p)
	case d.place.isLink():
		d.continueLink(p)
	default:
		d.countBytes(len(p))
	}
}

// continueLink handles a part of a link. The first part contains the scheme.
func (d *document) continueLink(p []byte) {
	if d.token.n == 0 {
		d.parts.link(d.place, p)
	}
	d.token.invalidate()
}

// endString handles the last bytes of a string.
func (d *document) endString(p []byte) {
	switch {
	case d.inName:
		d.inName = false
		name := d.token.finish(p)
		d.place = d.stack[d.depth-1].place.member(name)
		d.state = atColon
		switch {
		case d.place == toolUses && d.stack[d.depth-1].place == serverToolUse:
			d.report.tool.set(name[:len(name)-len(usesSuffix)])
		case d.place == toolReportEntry:
			d.report.tool.set(name)
		}
	case d.skipDepth > 0:
		d.state = inSkipped
	case d.place.isToken():
		d.endToken(d.token.finish(p))
		d.endValue()
	case d.place.isNumber(): // some servers quote their figures
		digits := "0123456789"
		if d.place == recordedSeconds { // older answers have "8.47"
			digits += "."
		}
		if text := d.token.finish(p); len(bytes.Trim(text, digits)) == 0 {
			d.storeNumber(countOf(text))
		}
		d.endValue()
	case d.place.isLink():
		d.continueLink(p)
		d.endValue()
	default:
		d.countBytes(len(p))
		d.endValue()
	}
}

// eventType handles the type of an event, from the event field or from the data.
func (d *document) eventType(kind []byte) {
	switch string(kind) {
	case "error":
		d.fail()
	case "message_stop":
		d.stopped = true
	case "response.completed", "response.incomplete":
		d.seen |= seenLastEvent
	case "response.failed", "response.cancelled":
		d.fail()
	case "transcript.text.done", "speech.audio.done":
		d.seen |= seenLastEvent
	case "image_generation.partial_image", "image_edit.partial_image":
		d.mediaEvent().partial = true
	case "image_generation.completed", "image_edit.completed":
		d.mediaEvent().whole = true
	case "response.output_item.done":
		d.seen |= seenItemDone
	}
}

// endToken handles a string that is compared or stored. Word is nil if the string is invalid:
// see [token].
func (d *document) endToken(word []byte) {
	r := &d.report
	switch d.place {
	case model: // every chunk of a chat has one
		if string(word) != string(r.model.bytes()) {
			r.model.set(word)
		}
	case documentType:
		d.eventType(word)
	case imageSize:
		d.media.size.set(word)
	case imageQuality:
		d.media.quality.set(word)
	case stopReason:
		r.refused = string(word) == "refusal"
	case tier, speed, geo:
		if r.passes == nil || !r.passes.open { // the tier of an iteration is not that of the call
			r.serviceName(d.place).set(word)
		}
	case itemType:
		d.delivered.unseen = r.items.begin(word) || d.delivered.unseen
	case actionType:
		r.items.other = string(word) != "search"
	case environmentType:
		r.items.local = string(word) == "local"
	case blockKind:
		r.inServerTool = string(word) == "server_tool_use"
		kind := string(word)
		d.delivered.other = d.delivered.other || kind != "text" && kind != "thinking"
		d.delivered.unseen = d.delivered.unseen || kind != "text" && kind != "tool_use"
	case blockName:
		r.tool.set(word)
		d.delivered.names += int64(len(word))
	case iterationType:
		r.passes.kind = passKindOf(word)
	case iterationModel:
		r.passes.model.set(word)
	case containerID:
		if d.report.items != nil && len(word) > 0 {
			d.report.items.container = maphash.Bytes(containerSeed, word)
		}
		d.objectToken(d.place, word)
	case objectID, itemID, conversationID, responseStatus:
		d.objectToken(d.place, word)
	case requestPartType:
		d.parts.open[d.parts.depth-1].image = string(word) == "image"
	}
}

func (d *document) fail() {
	d.failed = true
	d.seen |= seenFault
}

// countBytes counts n bytes of a string by its place.
func (d *document) countBytes(n int) {
	if n == 0 || d.inName {
		return
	}
	switch d.place {
	case text, contentBlocks, requestText, toolInput:
		d.delivered.text += int64(n)
	case itemText:
		d.delivered.eventItems += int64(n)
	case reasoning, reasoningContent, reasoningDetails, otherText:
		d.delivered.reasoning[d.place-reasoning] += int64(n)
	case toolName:
		d.delivered.names += int64(n)
	case signature:
		d.delivered.signatures += int64(n)
	case mediaData:
		d.delivered.speech += int64(n)
	case listedImage, eventImage:
		if d.token.n == 0 {
			d.addPicture(d.place == listedImage)
		}
		d.token.invalidate()
	case imageData:
		if d.token.n == 0 { // the first part of the string
			d.delivered.images = min(d.delivered.images, math.MaxInt32-1) + 1
		}
		d.token.invalidate()
	case fault:
		d.fail()
	case finishReason:
		d.choice.finished = true
	}
}

// unicode handles a digit of \uXXXX. Half a surrogate pair has two UTF-8 bytes, so that a
// pair has four.
func (d *document) unicode(digit uint8) {
	e := &d.escape
	e.code = e.code<<4 | uint16(digit)
	if e.digits--; e.digits > 0 {
		return
	}
	d.state = inString
	switch {
	case e.code < 0x80:
		d.character(byte(e.code), 1)
	case e.code < 0x800, 0xd800 <= e.code && e.code < 0xe000:
		d.character(0, 2)
	default:
		d.character(0, 3)
	}
}

// unescaped are the characters that a backslash and one byte stand for; zero for any other byte.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// character handles a character that is written with an escape, and has size UTF-8 bytes. c
// is zero if it is not ASCII. No known name has such a character.
func (d *document) character(c byte, size int) {
	switch {
	case !d.inName && !d.place.isToken() && !d.place.isNumber():
		d.countBytes(size)
	case c == 0:
		d.token.invalidate()
	default:
		d.token.add([]byte{c})
	}
}

// token stores a short string that may arrive in parts. A string that is too long, or has an
// escape that is not ASCII, is invalid: it equals none of the names in the tables.
type token struct {
	buf [256]byte
	n   uint16 // bytes stored; a value greater than the size of buf: the token is invalid
}

func (t *token) reset()      { t.n = 0 }
func (t *token) invalidate() { t.n = uint16(len(t.buf) + 1) }

func (t *token) add(p []byte) {
	if int(t.n)+len(p) > len(t.buf) {
		t.invalidate()
		return
	}
	t.n += uint16(copy(t.buf[t.n:], p))
}

// finish returns the string that ends with p, or nil if it is invalid.
func (t *token) finish(p []byte) []byte {
	if t.n == 0 {
		return p
	}
	t.add(p)
	if int(t.n) > len(t.buf) {
		return nil
	}
	return t.buf[:t.n]
}

// plainPrefix returns the number of bytes of p before its first quote or backslash. It
// compares eight at a time.
func plainPrefix(p []byte) int {
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
