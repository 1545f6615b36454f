package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"
)

// A scan reads pages, the first of them small, because most scans end early.
const (
	firstPage = 32
	lastPage  = 1024
)

// runner runs one statement.
type runner func(sql string, args ...any) (rows [][][]byte, err error)

// scan passes the keys in [lo, hi) to fn, page by page. No statement is open while fn runs.
func scan(run runner, sql statements, lo, hi []byte, fn func(key, val []byte) bool) error {
	for page := int64(firstPage); ; page = min(4*page, lastPage) {
		var rows [][][]byte
		var err error
		if hi == nil {
			rows, err = run(sql.scanUp, lo, page)
		} else {
			rows, err = run(sql.scan, lo, hi, page)
		}
		if err != nil {
			return err
		}
		for _, row := range rows {
			if !fn(row[0], row[1]) {
				return nil
			}
		}
		if int64(len(rows)) < page {
			return nil
		}
		last := rows[len(rows)-1][0]
		lo = append(append(make([]byte, 0, len(last)+1), last...), 0)
	}
}

// get returns the value of a key, nil if there is none.
func get(run runner, sql statements, key []byte) ([]byte, error) {
	rows, err := run(sql.get, key)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0][0], nil
}

// snapshot is the reader of a view: a transaction on a connection of its own.
type snapshot struct {
	ctx  context.Context
	conn *pgconn.PgConn
	sql  statements
}

// Get implements storage.Reader.
func (s *snapshot) Get(key []byte) ([]byte, error) { return get(s.run, s.sql, key) }

// Scan implements storage.Reader.
func (s *snapshot) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	return scan(s.run, s.sql, lo, hi, fn)
}

func (s *snapshot) run(sql string, args ...any) ([][][]byte, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, statementTimeout)
	defer cancel()
	rows, _, err := query(ctx, s.conn, sql, args...)
	if err != nil {
		return nil, unreachable(s.ctx, err)
	}
	return rows, nil
}
