package usage

import (
	"compress/gzip"
	"io"
	"iter"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxUnpacked bounds what is unpacked of one answer, in bytes. It is far
	// more than a model writes; beyond it only a bomb goes on.
	maxUnpacked = 256 << 20

	// maxWindow is the largest window of a zstd frame, by RFC 9659.
	maxWindow = 8 << 20

	// portion is how much is unpacked at a time.
	portion = 4 << 10
)

// format is a Content-Encoding that can be read.
type format struct {
	pool sync.Pool // of decoders
}

// decoder unpacks what it pulls from the reader it was reset to.
type decoder interface {
	io.Reader
	Reset(io.Reader) error
}

var (
	gzipFormat = &format{sync.Pool{New: func() any { return new(gzip.Reader) }}}
	zstdFormat = &format{sync.Pool{New: func() any {
		// With a concurrency of one nothing runs beside the reading call. The
		// options are constant and valid, and a nil reader cannot fail.
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		return d
	}}}
)

// formatOf returns the format of a Content-Encoding, nil for plain bytes, and
// whether it is known.
func formatOf(encoding string) (f *format, known bool) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return nil, true
	case "gzip", "x-gzip":
		return gzipFormat, true
	case "zstd":
		return zstdFormat, true
	}
	return nil, false
}

// unpacker unpacks bytes as they are written. Decoders pull, but the bytes are
// pushed: so the decoder runs as a coroutine that is resumed with each portion
// and suspended when it wants more. Nothing runs at the same time, and nothing
// is held but the decoder's own window.
type unpacker struct {
	resume  func() (struct{}, bool)
	stop    func()
	pending []byte // of the portion being written
	suspend func(struct{}) bool
}

// newUnpacker returns an unpacker that hands what it unpacks to sink.
func newUnpacker(f *format, sink func([]byte)) *unpacker {
	u := new(unpacker)
	u.resume, u.stop = iter.Pull(func(yield func(struct{}) bool) {
		u.suspend = yield
		d := f.pool.Get().(decoder)
		defer f.pool.Put(d)
		u.run(d, sink)
	})
	return u
}

// run unpacks until the bytes end or make no sense.
func (u *unpacker) run(d decoder, sink func([]byte)) {
	if d.Reset(u) != nil {
		return
	}
	buf := make([]byte, portion)
	for total := 0; total < maxUnpacked; {
		n, err := d.Read(buf)
		sink(buf[:n])
		if err != nil {
			return
		}
		total += n
	}
}

// write unpacks p, and reports whether it goes on: false when what came is
// damaged or too much.
func (u *unpacker) write(p []byte) bool {
	u.pending = p
	_, goesOn := u.resume()
	u.pending = nil
	return goesOn
}

// close ends the coroutine; its decoder is told that the bytes are over.
func (u *unpacker) close() {
	u.stop()
}

// Read gives the decoder what was written, and waits for more when that is used up.
func (u *unpacker) Read(b []byte) (int, error) {
	for len(u.pending) == 0 {
		if !u.suspend(struct{}{}) {
			return 0, io.EOF
		}
	}
	n := copy(b, u.pending)
	u.pending = u.pending[n:]
	return n, nil
}
