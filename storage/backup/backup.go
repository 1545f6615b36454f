// Package backup reads and writes the backups of stores. All engines use this one format, so a
// backup of one engine can be restored into another.
//
// [Write] writes a backup, [Reader] reads it and checks that nothing is missing. A backup is
//
//	"modelgate backup 1\n"
//	for each key, ascending: byte 1, uvarint key length, uvarint value length,
//	                         uvarint purge (seconds since 1970; 0: never), key, value
//	byte 0, uvarint number of keys, SHA-256 of everything before
package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
)

const (
	head  = "modelgate backup 1\n"
	end   = 0
	entry = 1
)

// The maximum lengths in bytes of what a backup can hold. A file with more is damaged.
const (
	MaxKey   = 64 << 10
	MaxValue = 256 << 20
)

// Entry is a key with its value.
type Entry struct {
	Key, Val []byte

	// Purge is when the engine may drop the key, in seconds since 1970. Zero means never.
	Purge uint64
}

// Write writes a backup of the entries that each passes to add. Their keys must ascend. each ends
// when add returns false, which is after an error of w.
func Write(w io.Writer, each func(add func(Entry) bool) error) error {
	sum := sha256.New()
	buf := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
	buf.WriteString(head) // bufio.Writer keeps its first error
	count := uint64(0)
	var failed error
	err := each(func(e Entry) bool {
		count++
		numbers := []byte{entry}
		numbers = binary.AppendUvarint(numbers, uint64(len(e.Key)))
		numbers = binary.AppendUvarint(numbers, uint64(len(e.Val)))
		numbers = binary.AppendUvarint(numbers, e.Purge)
		buf.Write(numbers)
		buf.Write(e.Key)
		_, failed = buf.Write(e.Val)
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	buf.Write(binary.AppendUvarint([]byte{end}, count))
	if err := buf.Flush(); err != nil {
		return err
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// Reader reads a backup. It may not be used concurrently.
type Reader struct {
	r     *bufio.Reader
	sum   hash.Hash
	count uint64
	began bool
	last  []byte // the last key
}

// NewReader returns a Reader of the backup in r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
}

var (
	errFormat  = errors.New("this is not a backup that this build can read")
	errDamaged = errors.New("the backup is damaged")
)

// Next returns the next entry, with slices of its own. It returns io.EOF after the last one, if the
// backup is complete. Until then the entries must not be used: a later part may be damaged.
func (b *Reader) Next() (Entry, error) {
	if !b.began {
		got := make([]byte, len(head))
		if _, err := io.ReadFull(hashed{b}, got); err != nil || string(got) != head {
			return Entry{}, errFormat
		}
		b.began = true
	}
	kind, err := hashed{b}.ReadByte()
	if err != nil {
		return Entry{}, damaged(err)
	}
	switch kind {
	case entry:
		return b.entry()
	case end:
		return Entry{}, b.end()
	}
	return Entry{}, errDamaged
}

func (b *Reader) entry() (Entry, error) {
	var numbers [3]uint64 // key length, value length, purge
	for i := range numbers {
		var err error
		if numbers[i], err = binary.ReadUvarint(hashed{b}); err != nil {
			return Entry{}, damaged(err)
		}
	}
	if numbers[0] > MaxKey || numbers[1] > MaxValue {
		return Entry{}, errDamaged
	}
	e := Entry{Purge: numbers[2]}
	var err error
	if e.Key, err = b.bytes(numbers[0]); err != nil {
		return Entry{}, err
	}
	if e.Val, err = b.bytes(numbers[1]); err != nil {
		return Entry{}, err
	}
	if b.count > 0 && bytes.Compare(e.Key, b.last) <= 0 {
		return Entry{}, errDamaged
	}
	b.count++
	b.last = append(b.last[:0], e.Key...)
	return e, nil
}

// bytes reads n bytes. It allocates no more than the file has, whatever its lengths say.
func (b *Reader) bytes(n uint64) ([]byte, error) {
	const atOnce = 1 << 20
	if n <= atOnce {
		read := make([]byte, n)
		_, err := io.ReadFull(hashed{b}, read)
		return read, damaged(err)
	}
	var read bytes.Buffer
	_, err := io.CopyN(&read, hashed{b}, int64(n)) //nolint:gosec // MaxValue bounds it
	return read.Bytes(), damaged(err)
}

// end reads the number of keys and the checksum, and compares them with the entries.
func (b *Reader) end() error {
	announced, err := binary.ReadUvarint(hashed{b})
	if err != nil {
		return damaged(err)
	}
	want := b.sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(b.r, got); err != nil {
		return damaged(err)
	}
	if _, err := b.r.ReadByte(); err != io.EOF || announced != b.count || !bytes.Equal(got, want) {
		return errDamaged
	}
	return io.EOF
}

// hashed reads a backup and adds what it reads to the checksum.
type hashed struct{ *Reader }

func (h hashed) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.sum.Write(p[:n])
	return n, err
}

func (h hashed) ReadByte() (byte, error) {
	c, err := h.r.ReadByte()
	if err == nil {
		h.sum.Write([]byte{c})
	}
	return c, err
}

// damaged returns errDamaged for the end of the file in the middle of a backup.
func damaged(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends too early", errDamaged)
	}
	return err
}
