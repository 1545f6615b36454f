package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-modelgate/modelgate/storage"
)

// connectTimeout bounds the start of a connection, and an attempt to become active.
const connectTimeout = 5 * time.Second

// watch is what a standby knows of the active gateway.
type watch struct {
	of *target

	mu          sync.Mutex
	conn        *pgconn.PgConn
	application string // the name of this gateway's connections
	seen        sight
	since       time.Time // when seen was first seen; zero: never
}

// sight is what the database says of the active gateway.
type sight struct {
	epoch, beat       int64
	ended             bool
	name, application string
}

// lane is the right to write: an epoch, and the connection that keeps it.
type lane struct {
	epoch       int64
	application string
	conn        *pgconn.PgConn
}

// take makes this gateway the active one and returns its lane. It returns
// [storage.ErrStandby] unless the epoch in force has ended, or has been silent for patience
// while every look succeeded: an outage of the database ends no epoch.
func (w *watch) take(ctx context.Context, patience time.Duration) (_ *lane, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		if err != nil && !errors.Is(err, storage.ErrStandby) {
			w.forget()
		}
	}()
	if w.application == "" {
		w.application = "modelgate-" + rand.Text()
	}
	if w.conn == nil {
		if w.conn, err = w.of.connect(ctx, w.application); err != nil {
			return nil, err
		}
	}
	now, err := w.look(ctx)
	if err != nil {
		return nil, err
	}
	if w.since.IsZero() || now != w.seen {
		w.seen, w.since = now, time.Now()
	}
	if !now.ended && time.Since(w.since) < patience {
		return nil, fmt.Errorf("%w: %s", storage.ErrStandby, now.name)
	}
	taken, err := w.succeed(ctx, now)
	if err != nil {
		return nil, err
	}
	if !taken {
		return nil, fmt.Errorf("%w: another gateway was faster", storage.ErrStandby)
	}
	l := &lane{epoch: now.epoch + 1, application: w.application, conn: w.conn}
	w.conn, w.application, w.since = nil, "", time.Time{}
	return l, nil
}

// look reads who is active. It creates the tables if there are none.
func (w *watch) look(ctx context.Context) (s sight, err error) {
	rows, _, err := query(ctx, w.conn, w.of.sql.look)
	if c := code(err); c == undefinedTable || c == invalidSchema {
		err = w.conn.Exec(ctx, w.of.sql.create).Close()
		if code(err) == insufficientRight {
			return s, fmt.Errorf("creating the tables of the store: %w; create the schema for this user: create schema <name> authorization <user>", err)
		}
		if err != nil {
			return s, fmt.Errorf("creating the tables of the store: %w", err)
		}
		rows, _, err = query(ctx, w.conn, w.of.sql.look)
	}
	switch {
	case err != nil:
		return s, err
	case len(rows) != 1:
		return s, errors.New("the table lane of the store is damaged: it has no row")
	case number(rows[0][0]) != format:
		return s, fmt.Errorf("the tables of the store have format %d, this build reads %d: use the build that wrote them", number(rows[0][0]), format)
	case string(rows[0][6]) == "off":
		return s, errors.New("synchronous_commit is off for this user or database: commits that were acknowledged could be lost; set it to on")
	}
	row := rows[0]
	return sight{epoch: number(row[1]), ended: number(row[2]) == 1, beat: number(row[3]), name: string(row[4]), application: string(row[5])}, nil
}

// succeed ends the epoch that was seen and begins the next one, unless another gateway has
// done so or the epoch has moved. A connection of the old epoch that the server still has may
// hold locks, for instance if its machine is stopped, so the server ends it.
func (w *watch) succeed(ctx context.Context, old sight) (taken bool, err error) {
	sql := w.of.sql
	if !old.ended {
		if _, _, err := query(ctx, w.conn, sql.terminate, old.application); err != nil && code(err) != insufficientRight {
			return false, err
		}
	}
	if err := w.conn.Exec(ctx, "begin; set local lock_timeout = '4s'").Close(); err != nil {
		return false, err
	}
	defer func() {
		if !taken && err == nil {
			err = w.conn.Exec(ctx, "rollback").Close()
		}
	}()
	if _, _, err := query(ctx, w.conn, sql.locked); err != nil {
		return false, err
	}
	now, err := w.look(ctx)
	if err != nil {
		return false, err
	}
	if now.epoch != old.epoch || now.beat != old.beat && !now.ended {
		return false, nil
	}
	if _, _, err := query(ctx, w.conn, sql.end, old.epoch); err != nil {
		return false, err
	}
	if _, _, err := query(ctx, w.conn, sql.take, old.epoch+1, w.application, nodeName()); err != nil {
		return false, err
	}
	return true, w.conn.Exec(ctx, "commit").Close()
}

// nodeName returns a name of this process for people.
func nodeName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// forget drops what was seen, and the connection.
func (w *watch) forget() {
	w.since = time.Time{}
	if w.conn != nil {
		closeConn(w.conn)
		w.conn = nil
	}
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget()
}

// closeConn closes a connection, and waits a moment for the server to know.
func closeConn(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the server ends what it cannot finish
}
