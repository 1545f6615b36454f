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
	create, look, take, end, locked, fence, terminate string
	beat, write, burn, outcome                        string
	get, scan, scanUp, all, fill, purge               string
}

func statementsOf(schema string) statements {
	in := func(text string) string {
		return strings.ReplaceAll(text, "{}", `"`+schema+`"`)
	}
	return statements{
		// The lock makes gateways that start at the same time create the tables one after
		// another; it ends with the transaction.
		create: in(`begin;
			select pg_advisory_xact_lock(7236184059);
			create schema if not exists {};
			create table if not exists {}.lane (one boolean primary key default true check (one), format int not null, epoch bigint not null);
			create table if not exists {}.node (epoch bigint primary key, application text not null, name text not null,
				since timestamptz not null default clock_timestamp(), ended timestamptz, batch bigint not null default 0);
			create table if not exists {}.beat (epoch bigint primary key, n bigint not null) with (fillfactor = 30);
			create table if not exists {}.kv (key bytea primary key, value bytea not null, purge bigint not null);
			create index if not exists kv_purge on {}.kv (purge) where purge > 0;
			insert into {}.lane (format, epoch) values (1, 0) on conflict do nothing;
			commit`),

		look: in(`select l.format::bigint, l.epoch, (n.epoch is null or n.ended is not null)::int::bigint, coalesce(b.n, 0), coalesce(n.name, ''), coalesce(n.application, ''),
				current_setting('synchronous_commit')
			from {}.lane l left join {}.node n using (epoch) left join {}.beat b using (epoch)`),

		// A take-over is a transaction of these statements: locked, beats again, end, take.
		locked: in(`select epoch from {}.lane for update`),
		end:    in(`update {}.node set ended = clock_timestamp() where epoch = $1 and ended is null`),
		take: in(`with lane as (update {}.lane set epoch = $1), beat as (insert into {}.beat (epoch, n) values ($1, 0)),
				old as (delete from {}.node where epoch < $1 - 1000), oldbeat as (delete from {}.beat where epoch < $1 - 1)
			insert into {}.node (epoch, application, name) values ($1, $2, $3)`),
		terminate: `select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = $1 and pid <> pg_backend_pid()`,
		fence:     in(`select 1 from {}.node where epoch = $1 and ended is null`),

		beat: in(`with b as (update {}.beat set n = n + 1 where epoch = $1)
			select (extract(epoch from clock_timestamp()) * 1000000)::bigint from {}.node where epoch = $1 and ended is null`),

		// One statement is one transaction and one trip. It divides by zero if the epoch has
		// ended, or if the last batch of the epoch is not the one that the engine knows.
		write: in(`with fence as (update {}.node set batch = $2 where epoch = $1 and ended is null and batch = $3 returning 1),
				put as (insert into {}.kv (key, value, purge) select * from unnest($4::bytea[], $5::bytea[], $6::bigint[]) as t (key, value, purge) order by key
					on conflict (key) do update set value = excluded.value, purge = excluded.purge),
				gone as (delete from {}.kv where key = any($7::bytea[]))
			select 1 / count(*) from fence`),
		burn:    in(`update {}.node set batch = $2 where epoch = $1 and ended is null and batch = $3 returning 1`),
		outcome: in(`select batch, (ended is not null)::int::bigint from {}.node where epoch = $1`),

		get:    in(`select value from {}.kv where key = $1`),
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
	divisionByZero    = "22012"
	undefinedTable    = "42P01"
	invalidSchema     = "3F000"
	diskFull          = "53100"
	limitExceeded     = "54000"
	serialization     = "40001"
	deadlock          = "40P01"
	duplicateKey      = "23505"
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
	values, oids := make([][]byte, len(args)), make([]uint32, len(args))
	for i, arg := range args {
		values[i], oids[i] = encode(arg)
	}
	result := conn.ExecParams(ctx, sql, values, oids, binaryFormat, binaryFormat).Read()
	return result.Rows, result.CommandTag.RowsAffected(), result.Err
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
