package transport

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// The parts of a chunked body (RFC 9112, section 7.1).
type chunkPart int

const (
	chunkSize    chunkPart = iota // the line before the data
	chunkData                     // left bytes of it
	chunkDataEnd                  // the line end behind it
	chunkTrailer                  // the lines behind the last chunk
)

// The limits of the lines of a chunked body, in bytes.
const (
	maxChunkLine = bufferSize
	maxTrailers  = 16 << 10
)

// readChunks reads as much as there is without waiting, but at least one byte. It returns io.EOF
// with the last bytes if the end of the body has arrived as well.
func (e *exchange) readChunks(p []byte) (n int, err error) {
	c := e.conn
	for {
		if n > 0 && (n == len(p) && e.part == chunkData || !e.hasNext()) {
			return n, nil
		}
		switch e.part {
		case chunkSize:
			line, err := c.readLine(maxChunkLine)
			if err != nil {
				return n, err
			}
			if e.left, err = parseChunkSize(line); err != nil {
				return n, err
			}
			e.part = chunkData
			if e.left == 0 {
				e.part = chunkTrailer
			}
		case chunkData:
			more, err := e.readLeft(p[n:])
			n += more
			if err != nil {
				return n, err
			}
			if e.left == 0 {
				e.part = chunkDataEnd
			}
		case chunkDataEnd:
			line, err := c.readLine(2)
			if err != nil {
				return n, err
			}
			if len(line) > 0 {
				return n, malformed("chunk", string(line))
			}
			e.part = chunkSize
		case chunkTrailer:
			line, err := c.readLine(maxChunkLine)
			if err != nil {
				return n, err
			}
			if len(line) == 0 {
				return n, e.endTrailers()
			}
			if len(e.trailers)+len(line) > maxTrailers {
				return n, errTooLong
			}
			e.trailers = append(append(e.trailers, line...), '\n')
		}
	}
}

// hasNext reports whether the next step of readChunks does not wait.
func (e *exchange) hasNext() bool {
	unread := e.conn.buf[e.conn.r:e.conn.w]
	if e.part == chunkData {
		return len(unread) > 0
	}
	return bytes.IndexByte(unread, '\n') >= 0
}

// endTrailers puts the trailers into the answer. It returns io.EOF.
func (e *exchange) endTrailers() error {
	if len(e.trailers) == 0 {
		return io.EOF
	}
	fields, err := parseFields(string(append(e.trailers, '\n')))
	if err != nil {
		return err
	}
	for name, values := range fields {
		if isFraming(name) {
			return malformed("trailer", name)
		}
		if e.resp.Trailer == nil {
			e.resp.Trailer = make(http.Header, len(fields))
		}
		e.resp.Trailer[name] = values
	}
	return io.EOF
}

// readLine returns a line without its CRLF, of at most limit bytes with it. It is valid until the
// next read. A bare LF is refused: two readers that disagree about it see different chunks.
func (c *conn) readLine(limit int) ([]byte, error) {
	for scanned := 0; ; {
		unread := c.buf[c.r:c.w]
		if i := bytes.IndexByte(unread[scanned:], '\n'); i >= 0 {
			end := scanned + i
			if end >= limit {
				return nil, errTooLong
			}
			if end == 0 || bytes.IndexByte(unread[:end], '\r') != end-1 {
				return nil, malformed("chunk", string(unread[:end]))
			}
			c.r += end + 1
			return unread[:end-1], nil
		}
		if scanned = len(unread); scanned >= limit {
			return nil, errTooLong
		}
		if err := c.fill(limit); err != nil {
			return nil, unexpected(err)
		}
	}
}

var errChunkSize = errors.New("transport: malformed chunk size")

// parseChunkSize parses the line before a chunk. Extensions are ignored.
func parseChunkSize(line []byte) (size int64, err error) {
	line, _, _ = bytes.Cut(line, []byte(";"))
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 || len(line) > 16 {
		return 0, errChunkSize
	}
	var n uint64
	for _, c := range line {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, errChunkSize
		}
		n = n<<4 | uint64(c)
	}
	if size = int64(n); size < 0 {
		return 0, errChunkSize
	}
	return size, nil
}
