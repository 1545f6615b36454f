package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// format is the layout of the tables. It rises when an earlier build would misread them.
const format = 1

// statements are the texts of all statements, with the name of the schema.
type statements struct {
	create, look, clock                       string
	beginUpdate, idle, wait, lock, try        string
	put, remove                               string
	get, gets, scan, scanUp, all, fill, purge string
}

// beginView begins the transaction of a view.
const beginView = "begin isolation level repeatable read, read only"

func statementsOf(schema string) statements {
	in := func(text string) string {
		return strings.ReplaceAll(text, "{}", `"`+schema+`"`)
	}
	// The text names the write lock. Gateways of all versions must lock the same name.
	lock := `hashtextextended('modelgate lane ' || current_database() || ' ' || '` + strings.ReplaceAll(schema, "'", "''") + `', 0)`
	return statements{
		// The lock makes gateways that start at the same time create the tables one after
		// another; it ends with the transaction.
		create: in(`begin;
			select pg_advisory_xact_lock(7236184059);
			create schema if not exists {};
			create table if not exists {}.layout (one boolean primary key default true check (one), format int not null);
			create table if not exists {}.kv (key bytea primary key, value bytea not null, purge bigint not null);
			create index if not exists kv_purge on {}.kv (purge) where purge > 0;
			insert into {}.layout (format) values (1) on conflict do nothing;
			commit`),
		look:  in(`select format::bigint, current_setting('synchronous_commit') from {}.layout`),
		clock: `select (extract(epoch from clock_timestamp()) * 1000000)::bigint`,

		beginUpdate: `begin isolation level read committed`,
		idle:        `set local idle_in_transaction_session_timeout = %d`,
		wait:        `set local lock_timeout = '5s'`,
		lock:        `select pg_advisory_xact_lock(` + lock + `)`,
		try:         `select pg_try_advisory_xact_lock(` + lock + `)::int::bigint`,

		put: in(`insert into {}.kv (key, value, purge) select * from unnest($1::bytea[], $2::bytea[], $3::bigint[]) as t (key, value, purge) order by key
			on conflict (key) do update set value = excluded.value, purge = excluded.purge`),
		remove: in(`delete from {}.kv where key = any($1::bytea[])`),

		get:    in(`select value from {}.kv where key = $1`),
		gets:   in(`select key, value from {}.kv where key = any($1::bytea[])`),
		scan:   in(`select key, value from {}.kv where key >= $1 and key < $2 order by key limit $3`),
		scanUp: in(`select key, value from {}.kv where key >= $1 order by key limit $2`),
		all:    in(`select key, value, purge from {}.kv order by key`),
		fill:   in(`copy {}.kv (key, value, purge) from stdin binary`),
		purge: in(`delete from {}.kv where key in (select key from {}.kv
			where purge > 0 and purge < extract(epoch from clock_timestamp()) - 60 limit 1000 for update skip locked)`),
	}
}

// The codes of errors that the engine knows.
const (
	undefinedTable    = "42P01"
	invalidSchema     = "3F000"
	diskFull          = "53100"
	limitExceeded     = "54000"
	serialization     = "40001"
	deadlock          = "40P01"
	insufficientRight = "42501"
)

// code returns the SQLSTATE of an error of the server, else "".
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// query runs one statement and returns its rows and how many rows it changed. Arguments are
// int64, string, []byte, []int64 and [][]byte; the parameters are sent in binary.
func query(ctx context.Context, conn *pgconn.PgConn, sql string, args ...any) (rows [][][]byte, changed int64, err error) {
	values, oids := encodeAll(args)
	result := conn.ExecParams(ctx, sql, values, oids, binaryFormat, binaryFormat).Read()
	return result.Rows, result.CommandTag.RowsAffected(), result.Err
}

// add adds one statement to a batch, which is one trip. Arguments are as those of query.
func add(batch *pgconn.Batch, sql string, args ...any) {
	values, oids := encodeAll(args)
	batch.ExecParams(sql, values, oids, binaryFormat, binaryFormat)
}

func encodeAll(args []any) (values [][]byte, oids []uint32) {
	values, oids = make([][]byte, len(args)), make([]uint32, len(args))
	for i, arg := range args {
		values[i], oids[i] = encode(arg)
	}
	return values, oids
}

var binaryFormat = []int16{1}

// encode returns an argument in PostgreSQL's binary format, and its type.
func encode(arg any) (value []byte, oid uint32) {
	switch v := arg.(type) {
	case int64:
		return binary.BigEndian.AppendUint64(nil, uint64(v)), pgtype.Int8OID //nolint:gosec // two's complement, as the server reads it
	case string:
		return []byte(v), pgtype.TextOID
	case []byte:
		if v == nil {
			v = []byte{} // nil is NULL
		}
		return v, pgtype.ByteaOID
	case []int64:
		b := arrayHeader(pgtype.Int8OID, len(v), 12*len(v))
		for _, n := range v {
			b = binary.BigEndian.AppendUint32(b, 8)
			b = binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // likewise
		}
		return b, pgtype.Int8ArrayOID
	case [][]byte:
		size := 0
		for _, e := range v {
			size += 4 + len(e)
		}
		b := arrayHeader(pgtype.ByteaOID, len(v), size)
		for _, e := range v {
			b = binary.BigEndian.AppendUint32(b, uint32(len(e))) //nolint:gosec // maxWrite bounds it
			b = append(b, e...)
		}
		return b, pgtype.ByteaArrayOID
	}
	panic(fmt.Sprintf("postgres: an argument of type %T", arg))
}

// arrayHeader returns the header of an array of n elements with room for size more bytes.
func arrayHeader(element uint32, n, size int) []byte {
	b := make([]byte, 0, 20+size)
	dimensions := uint32(1)
	if n == 0 {
		dimensions = 0
	}
	b = binary.BigEndian.AppendUint32(b, dimensions)
	b = binary.BigEndian.AppendUint32(b, 0) // no NULLs
	b = binary.BigEndian.AppendUint32(b, element)
	if n > 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(n)) //nolint:gosec // maxWrite bounds it
		b = binary.BigEndian.AppendUint32(b, 1)         // the first index
	}
	return b
}

// number decodes a bigint.
func number(value []byte) int64 {
	if len(value) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(value)) //nolint:gosec // two's complement
}
