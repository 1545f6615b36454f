package usage

import (
	"bytes"
	"compress/gzip"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// flushWriter is a compressor.
type flushWriter interface {
	io.WriteCloser
	Flush() error
}

// compressors are the supported encodings.
var compressors = map[string]func(io.Writer) flushWriter{
	"gzip":   func(w io.Writer) flushWriter { return gzip.NewWriter(w) },
	"X-GZip": func(w io.Writer) flushWriter { return gzip.NewWriter(w) },
	"zstd": func(w io.Writer) flushWriter {
		z, err := zstd.NewWriter(w)
		if err != nil {
			panic(err)
		}
		return z
	},
}

// compress returns body compressed, flushed after every event.
func compress(t *testing.T, encoding string, body []byte) []byte {
	t.Helper()
	var compressed bytes.Buffer
	w := compressors[encoding](&compressed)
	for _, event := range bytes.SplitAfter(body, []byte("\n\n")) {
		if _, err := w.Write(event); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return compressed.Bytes()
}

func TestACompressedAnswerHasTheSameResults(t *testing.T) {
	t.Parallel()
	for encoding := range compressors {
		for _, a := range answers {
			t.Run(encoding+" "+a.file, func(t *testing.T) {
				t.Parallel()
				d, stream := formatOf(a.file), isStream(a.file)
				body := readAnswer(t, a.file)
				want := read(d, stream, "", body)
				want.Boundary = false
				compressed := compress(t, encoding, body)
				for _, size := range []int{1, 7, len(compressed)} {
					if got := read(d, stream, encoding, slices.Collect(slices.Chunk(compressed, size))...); got != want {
						t.Errorf("parts of %d:\n got %+v\nwant %+v", size, got, want)
					}
				}
			})
		}
	}
}

func TestACompressedStreamIsReadAsItArrives(t *testing.T) {
	t.Parallel()
	for encoding, newWriter := range compressors {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			var compressed bytes.Buffer
			w := newWriter(&compressed)
			r := New(Completion, true, encoding)
			defer r.Close()
			for i := range int64(5) {
				io.WriteString(w, "data: "+sayHi+"\n\n")
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
				r.Write(compressed.Next(compressed.Len()))
				if got := r.TextBytes(); got != 2*(i+1) {
					t.Errorf("after event %d: %d bytes of text", i+1, got)
				}
			}
		})
	}
}

func TestDamagedCompressionMakesAnAnswerUnreadable(t *testing.T) {
	t.Parallel()
	body := readAnswer(t, "chat_text.sse")
	for encoding := range compressors {
		compressed := compress(t, encoding, body)
		damaged := slices.Clone(compressed)
		damaged[len(damaged)/2] ^= 0x55
		damaged = append(damaged, compressed...)
		if got := read(Completion, true, encoding, damaged, body); !got.Unreadable || !got.Began {
			t.Errorf("%s, damaged: %+v", encoding, got)
		}
		if got := read(Completion, true, encoding, body); !got.Unreadable || got.Input || !got.Began || got.TextBytes != int64(len(body)) {
			t.Errorf("%s, not compressed at all: %+v", encoding, got)
		}
		if got := read(Completion, true, encoding, compressed[:len(compressed)*3/4]); got.Unreadable || got.TextBytes != 6 {
			t.Errorf("%s, incomplete: %+v", encoding, got)
		}
		if got := read(Completion, true, encoding); got != (findings{}) {
			t.Errorf("%s, empty: %+v", encoding, got)
		}
	}
}

func TestUnknownEncodingsMakeAnAnswerUnreadable(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"br", "deflate", "gzip, gzip", "gzip;q=1"} {
		if got := read(Message, true, encoding); got != (findings{Unreadable: true}) {
			t.Errorf("%s, empty: %+v", encoding, got)
		}
		if got := read(Message, true, encoding, []byte("data: [DONE]\n\n")); got != (findings{Unreadable: true, Began: true, TextBytes: 14}) {
			t.Errorf("%s: %+v", encoding, got)
		}
	}
	if got := read(Message, true, " Identity "); got.Unreadable || !got.Boundary {
		t.Errorf("identity: %+v", got)
	}
}

func TestDecompressionIsBounded(t *testing.T) {
	// A zstd stream may have several frames, so the same frame can be repeated.
	frame := compress(t, "zstd", make([]byte, 1<<20))
	r := New(Message, false, "zstd")
	defer r.Close()
	r.Write(frame)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range maxDecompressed>>20 - 2 {
		r.Write(frame)
	}
	if r.Unreadable() {
		t.Error("the answer is unreadable below the bound")
	}
	r.Write(bytes.Repeat(frame, 2))
	runtime.ReadMemStats(&after)
	if !r.Unreadable() {
		t.Error("the answer is readable above the bound")
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maxWindow {
		t.Errorf("%d KiB were allocated", allocated>>10)
	}
}

func TestCloseStopsTheDecoder(t *testing.T) {
	before := runtime.NumGoroutine()
	compressed := compress(t, "gzip", readAnswer(t, "chat_text.sse"))
	for i := range 50 {
		r := New(Completion, true, "gzip")
		r.Write(compressed[:i])
		r.Close()
		r.Close()
		r.Write(compressed[i:])
	}
	if after := runtime.NumGoroutine(); after > before+10 {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}
