package badger

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/caddy-modelgate/modelgate/storage"
)

// A backup is
//
//	"modelgate backup 1\n"
//	for each key, ascending: byte 1, uvarint key length, uvarint value length,
//	                         uvarint expiry (seconds since 1970; 0: never), key, value
//	byte 0, uvarint number of keys, SHA-256 of everything before
//
// Badger's own format is not used. Its writer reads in several transactions
// with different snapshots, and silently omits unreadable values. A file in that
// format that was cut between two blocks restores without an error.
const backupHead = "modelgate backup 1\n"

const (
	backupEnd   = 0
	backupEntry = 1
)

// Backup implements storage.Backuper. It reads one snapshot while updates
// continue; space that they free is released after it ends.
func (e *engine) Backup(ctx context.Context, w io.Writer) error {
	return e.View(ctx, func(r storage.Reader) error {
		sum := sha256.New()
		buf := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
		buf.WriteString(backupHead)

		var count uint64
		var failed error
		err := r.(*view).each(nil, nil, func(key, val []byte, expires uint64) bool {
			count++
			head := []byte{backupEntry}
			head = binary.AppendUvarint(head, uint64(len(key)))
			head = binary.AppendUvarint(head, uint64(len(val)))
			head = binary.AppendUvarint(head, expires)
			buf.Write(head)
			buf.Write(key)
			_, failed = buf.Write(val) // bufio.Writer keeps its first error
			return failed == nil
		})
		if err := errors.Join(err, failed); err != nil {
			return fmt.Errorf("badger: backup: %w", err)
		}
		buf.Write(binary.AppendUvarint([]byte{backupEnd}, count))
		err = buf.Flush()
		if err == nil {
			_, err = w.Write(sum.Sum(nil))
		}
		if err != nil {
			return fmt.Errorf("badger: backup: %w", err)
		}
		return nil
	})
}

// Restore implements storage.Backuper. It commits while it reads; after an
// error the store holds a part of the copy and must be deleted.
func (e *engine) Restore(ctx context.Context, r io.Reader) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.running.Done()
	if err := e.acquire(ctx); err != nil {
		return err
	}
	defer e.release()

	if err := e.restore(ctx, &checksumReader{r: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}); err != nil {
		return fmt.Errorf("badger: restore: %w", err)
	}
	return nil
}

// restore reads a backup into the engine, in transactions as large as the
// engine accepts.
func (e *engine) restore(ctx context.Context, r *checksumReader) error {
	head := make([]byte, len(backupHead))
	if _, err := io.ReadFull(r, head); err != nil || string(head) != backupHead {
		return errors.New("this is not a backup that this build can read")
	}

	tx := e.begin(ctx)
	defer func() { e.end(tx) }()
	empty := true
	if err := tx.each(nil, nil, func(_, _ []byte, _ uint64) bool { empty = false; return false }); err != nil {
		return err
	}
	if !empty {
		return errors.New("the store is not empty")
	}

	for count := uint64(0); ; count++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		key, val, expires, err := r.entry()
		if err == io.EOF {
			if err := r.end(count); err != nil {
				return err
			}
			return e.commit(tx)
		}
		if err != nil {
			return err
		}
		err = tx.set(key, val, expires)
		if errors.Is(err, storage.ErrTooLarge) {
			if err := e.commit(tx); err != nil {
				return err
			}
			e.end(tx)
			tx = e.begin(ctx)
			err = tx.set(key, val, expires)
		}
		if err != nil {
			return err
		}
	}
}

// errDamaged is the error of a backup that was cut or changed.
var errDamaged = errors.New("the backup is damaged")

// checksumReader reads a backup and computes its checksum.
type checksumReader struct {
	r   *bufio.Reader
	sum hash.Hash
}

// Read implements io.Reader.
func (s *checksumReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.sum.Write(p[:n])
	return n, err
}

// ReadByte implements io.ByteReader.
func (s *checksumReader) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err == nil {
		s.sum.Write([]byte{b})
	}
	return b, err
}

// entry reads the next entry. It returns io.EOF only at the end mark, not at the
// end of a cut backup.
func (s *checksumReader) entry() (key, val []byte, expires uint64, err error) {
	kind, err := s.ReadByte()
	if err != nil {
		return nil, nil, 0, damaged(err)
	}
	switch kind {
	case backupEntry:
	case backupEnd:
		return nil, nil, 0, io.EOF
	default:
		return nil, nil, 0, errDamaged
	}
	var head [3]uint64 // key length, value length, expiry
	for i := range head {
		if head[i], err = binary.ReadUvarint(s); err != nil {
			return nil, nil, 0, damaged(err)
		}
	}
	if head[0] > maxKey || head[1] > maxLargeValues {
		return nil, nil, 0, errDamaged
	}
	key, val = make([]byte, head[0]), make([]byte, head[1])
	for _, part := range [][]byte{key, val} {
		if _, err := io.ReadFull(s, part); err != nil {
			return nil, nil, 0, damaged(err)
		}
	}
	return key, val, head[2], nil
}

// end reads the number of keys and the checksum after the end mark, and compares
// them with the entries.
func (s *checksumReader) end(count uint64) error {
	announced, err := binary.ReadUvarint(s)
	if err != nil {
		return damaged(err)
	}
	want := s.sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s.r, got); err != nil {
		return damaged(err)
	}
	if _, err := s.r.ReadByte(); err != io.EOF || announced != count || !bytes.Equal(got, want) {
		return errDamaged
	}
	return nil
}

// damaged returns errDamaged for the end of the file in the middle of a backup.
func damaged(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends too early", errDamaged)
	}
	return err
}
