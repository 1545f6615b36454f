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
	// maxDecompressed bounds the decompressed bytes of one answer. No model writes that
	// much, so a longer answer is a decompression bomb.
	maxDecompressed = 256 << 20

	// maxWindow is the largest window of a zstd frame, by RFC 9659.
	maxWindow = 8 << 20

	// chunkSize is the number of bytes that are decompressed at a time.
	chunkSize = 4 << 10
)

// decoder decompresses the bytes of the reader that was given to Reset.
type decoder interface {
	io.Reader
	Reset(io.Reader) error
}

// The decoders of the supported encodings.
var (
	gzipDecoders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	zstdDecoders = sync.Pool{New: func() any {
		// With a concurrency of one the decoder starts no goroutine. The
		// options are constant and valid, and a nil reader cannot fail.
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		return d
	}}
)

// decodersOf returns the decoders of a Content-Encoding, which are nil for plain bytes, and
// whether it is known.
func decodersOf(encoding string) (decoders *sync.Pool, known bool) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return nil, true
	case "gzip", "x-gzip":
		return &gzipDecoders, true
	case "zstd":
		return &zstdDecoders, true
	}
	return nil, false
}

// decompressor decompresses bytes as they are written. A decoder reads its input from a
// reader, but here the input arrives in calls of write. So the decoder runs as a coroutine:
// each write resumes it, and it is suspended when it needs more input. Nothing runs
// concurrently, and only the window of the decoder stays in memory.
type decompressor struct {
	resume  func() (struct{}, bool)
	stop    func() // ends the coroutine: the decoder reads the end of its input
	pending []byte // the bytes of the current write that the decoder has not read
	suspend func(struct{}) bool
}

// newDecompressor returns a decompressor that calls sink with the decompressed bytes.
func newDecompressor(decoders *sync.Pool, sink func([]byte)) *decompressor {
	u := new(decompressor)
	u.resume, u.stop = iter.Pull(func(yield func(struct{}) bool) {
		u.suspend = yield
		d := decoders.Get().(decoder)
		defer decoders.Put(d)
		u.run(d, sink)
	})
	return u
}

// run decompresses until the input ends or is damaged.
func (u *decompressor) run(d decoder, sink func([]byte)) {
	if d.Reset(u) != nil {
		return
	}
	buf := make([]byte, chunkSize)
	for total := 0; total < maxDecompressed; {
		n, err := d.Read(buf)
		sink(buf[:n])
		if err != nil {
			return
		}
		total += n
	}
}

// write decompresses p. It returns false if the input is damaged or too long.
func (u *decompressor) write(p []byte) bool {
	u.pending = p
	_, more := u.resume()
	u.pending = nil
	return more
}

// Read implements io.Reader for the decoder: it returns written bytes. If there are none, it
// suspends the coroutine until the next write.
func (u *decompressor) Read(b []byte) (int, error) {
	for len(u.pending) == 0 {
		if !u.suspend(struct{}{}) {
			return 0, io.EOF
		}
	}
	n := copy(b, u.pending)
	u.pending = u.pending[n:]
	return n, nil
}
