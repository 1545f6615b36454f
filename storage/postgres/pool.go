package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-modelgate/modelgate/storage"
)

// maxViews is the largest number of connections for views. Callers wait for one.
const maxViews = 8

// statementTimeout is how long one statement may take. The server cancels it afterwards.
const statementTimeout = 30 * time.Second

// pool has the connections of an engine. Any of them can run any statement.
type pool struct {
	of    *target
	slots chan struct{}       // a token for each connection in use
	idle  chan *pgconn.PgConn // as large as slots
}

func newPool(of *target, most int) *pool {
	return &pool{of: of, slots: make(chan struct{}, most), idle: make(chan *pgconn.PgConn, most)}
}

// with runs fn with a connection. fn must leave it outside of a transaction. If a connection
// turns out to be broken that was idle before, for instance because the server was started
// again, fn runs again with another one: it must have no effect that counts twice. The error
// is ErrUnreachable if there is no connection or if it broke.
func (p *pool) with(ctx context.Context, fn func(ctx context.Context, conn *pgconn.PgConn) error) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		conn, fresh, err := p.get(ctx)
		if err != nil {
			return unreachable(ctx, err)
		}
		err = p.run(ctx, conn, fn)
		switch {
		case err == nil || !conn.IsClosed():
			return err
		case fresh || ctx.Err() != nil:
			return unreachable(ctx, err)
		}
	}
}

// once runs fn once with a connection. The error is ErrUnreachable if there is none.
func (p *pool) once(ctx context.Context, fn func(conn *pgconn.PgConn) error) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	conn, _, err := p.get(ctx)
	if err != nil {
		return unreachable(ctx, err)
	}
	return p.run(ctx, conn, func(_ context.Context, conn *pgconn.PgConn) error { return fn(conn) })
}

// run runs fn with a connection and takes it back, unless fn panics.
func (p *pool) run(ctx context.Context, conn *pgconn.PgConn, fn func(ctx context.Context, conn *pgconn.PgConn) error) error {
	back := false
	defer func() {
		if !back {
			closeConn(conn)
		}
	}()
	err := fn(ctx, conn)
	if !conn.IsClosed() && conn.TxStatus() == 'I' {
		p.idle <- conn
		back = true
	}
	return err
}

// get returns an idle connection, or a fresh one.
func (p *pool) get(ctx context.Context) (conn *pgconn.PgConn, fresh bool, err error) {
	for {
		select {
		case conn = <-p.idle:
			if !conn.IsClosed() {
				return conn, false, nil
			}
		default:
			conn, err = p.of.connect(ctx)
			return conn, true, err
		}
	}
}

// closeConn closes a connection, and waits a moment for the server to know.
func closeConn(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the server ends what it cannot finish
}

// close closes the idle connections. None may be in use.
func (p *pool) close() {
	for {
		select {
		case conn := <-p.idle:
			closeConn(conn)
		default:
			return
		}
	}
}

// unreachable returns err as ErrUnreachable, unless ctx has ended.
func unreachable(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	if errors.Is(err, storage.ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrUnreachable, err)
}
