package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/backup"
)

// Backup implements [storage.Backuper]. It is for moves to another engine: the database has
// better means of its own. It reads one snapshot, row by row.
func (e *engine) Backup(ctx context.Context, w io.Writer) error {
	return e.View(ctx, func(r storage.Reader) error {
		err := backup.Write(w, func(add func(backup.Entry) bool) error {
			rows := r.(*snapshot).conn.ExecParams(ctx, e.sql.all, nil, nil, nil, binaryFormat)
			for more := true; more && rows.NextRow(); {
				row := rows.Values()
				more = add(backup.Entry{Key: row[0], Val: row[1], Purge: uint64(number(row[2]))}) //nolint:gosec // never negative
			}
			_, err := rows.Close()
			return errors.Join(err, ctx.Err())
		})
		if err != nil {
			return fmt.Errorf("postgres: backup: %w", err)
		}
		return nil
	})
}

// Restore implements [storage.Backuper]. It is one transaction, which holds the write lock.
// After an error the store is empty, as before.
func (e *engine) Restore(ctx context.Context, r io.Reader) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.running.Done()
	conn, err := e.of.connect(ctx)
	if err != nil {
		return unreachable(ctx, err)
	}
	defer closeConn(conn) // which rolls back what is not committed
	if err := e.restore(ctx, conn, &copyStream{from: backup.NewReader(r)}); err != nil {
		return fmt.Errorf("postgres: restore: %w", err)
	}
	return nil
}

func (e *engine) restore(ctx context.Context, conn *pgconn.PgConn, from *copyStream) error {
	if err := conn.Exec(ctx, e.sql.beginUpdate+"; "+e.sql.lock).Close(); err != nil {
		return err
	}
	rows, _, err := query(ctx, conn, e.sql.scanUp, []byte{}, int64(1))
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		return storage.ErrNotEmpty
	}
	if _, err := conn.CopyFrom(ctx, from, e.sql.fill); err != nil {
		return errors.Join(from.err, err)
	}
	return conn.Exec(ctx, "commit").Close()
}

// copyStream reads a backup in the binary format of COPY, with the columns of the table kv.
type copyStream struct {
	from  *backup.Reader
	ahead bytes.Buffer
	began bool
	err   error
}

// copyHead is the signature of the format, no flags, and no extension.
const copyHead = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// Read implements io.Reader.
func (s *copyStream) Read(p []byte) (int, error) {
	if !s.began {
		s.began = true
		s.ahead.WriteString(copyHead)
	}
	for s.err == nil && s.ahead.Len() < len(p) {
		var next backup.Entry
		if next, s.err = s.from.Next(); s.err == nil {
			row := binary.BigEndian.AppendUint16(nil, 3)
			for _, column := range [][]byte{next.Key, next.Val, binary.BigEndian.AppendUint64(nil, next.Purge)} {
				row = binary.BigEndian.AppendUint32(row, uint32(len(column))) //nolint:gosec // backup.MaxValue bounds it
				row = append(row, column...)
			}
			s.ahead.Write(row)
		}
	}
	if s.ahead.Len() > 0 && (s.err == nil || s.err == io.EOF) {
		return s.ahead.Read(p)
	}
	return 0, s.err // the format needs no end mark
}

// Interface guard
var _ storage.Backuper = (*engine)(nil)
