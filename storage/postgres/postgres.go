// Package postgres stores a modelgate store in a PostgreSQL database. Several gateways may name
// the same database: all of them are active, and any of them answers any call.
//
// [Postgres] is the Caddy module modelgate.storage.postgres. Opening it returns a [storage.Engine]
// that implements [storage.Shared]: other processes write to it, too. The updates of all of them
// run one after another, because each holds the same lock of the database, the write lock. Before
// an update takes the lock, the engine rehearses it: it runs the update without effect, to learn
// which keys it reads. So the update holds the lock for two round trips only. Package storage makes
// each process a node, with its epoch, its fence and the feed.
//
// No state is kept in sessions, and no statement is prepared, so the engine works through a
// transaction pooler. The package imports Caddy, package settings and package storage, and is
// the only one that imports pgx.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-modelgate/modelgate/settings"
	"github.com/caddy-modelgate/modelgate/storage"
)

func init() {
	caddy.RegisterModule(new(Postgres))
}

// Postgres stores data in a PostgreSQL database, version 13 or newer. Several gateways may
// have the same database and schema. Committed data is as durable as the database makes it:
// `synchronous_commit = off` is refused.
type Postgres struct {
	// The address of the database, as a URL or as `key=value` words:
	// `postgres://gateway@db.internal/gateway?sslmode=verify-full`. Placeholders are
	// resolved. What it does not name comes from the variables of PostgreSQL's own
	// programs, such as PGHOST and PGPASSWORD.
	DSN settings.Secret `json:"dsn,omitempty"`

	// The password, such as `{env.DB_PASSWORD}` or `{file./run/secrets/db}`.
	Password settings.Secret `json:"password,omitempty"`

	// A file that has the password. It is read for each connection, so the password can
	// change while the gateway runs.
	PasswordFile string `json:"password_file,omitempty"`

	// The schema of the tables, which the gateway creates. Each schema is a store of its
	// own. Default: `modelgate`.
	Schema string `json:"schema,omitempty"`

	// How long a change tries to reach the database before it fails. At least `1s`.
	// Default: `3s`.
	Patience caddy.Duration `json:"patience,omitempty"`

	config *pgconn.Config
	clock  *clock
}

const (
	defaultSchema   = "modelgate"
	defaultPatience = 3 * time.Second
	minPatience     = time.Second
	maxPatience     = time.Minute
)

// CaddyModule returns the Caddy module information.
func (*Postgres) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "modelgate.storage.postgres",
		New: func() caddy.Module { return new(Postgres) },
	}
}

// Provision resolves placeholders and sets the defaults. It connects to nothing, so that a
// configuration can be validated while a server runs.
func (p *Postgres) Provision(caddy.Context) error {
	if p.Schema == "" {
		p.Schema = defaultSchema
	}
	if p.Patience == 0 {
		p.Patience = caddy.Duration(defaultPatience)
	}
	if p.DSN != "" {
		if err := settings.Resolve("dsn", &p.DSN); err != nil {
			return err
		}
	}
	if p.Password != "" {
		if err := settings.Resolve("password", &p.Password); err != nil {
			return err
		}
	}
	if p.PasswordFile != "" {
		if err := settings.Resolve("password_file", &p.PasswordFile); err != nil {
			return err
		}
	}
	var err error
	if p.config, err = pgconn.ParseConfig(p.DSN.Reveal()); err != nil {
		return fmt.Errorf("dsn: %w", reason(err))
	}
	if p.Password != "" {
		p.config.Password = p.Password.Reveal()
	}
	p.clock = newClock()
	return nil
}

// reason returns why a DSN is refused, without the DSN, which may have a password.
func reason(err error) error {
	text := "it is a URL such as postgres://user@host/database, or words such as host=db.internal dbname=gateway"
	if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		if at := strings.LastIndex(parse.Error(), "`: "); at >= 0 {
			word, _, _ := strings.Cut(parse.Error()[at+len("`: "):], " (")
			text = word + "; " + text
		}
	}
	return errors.New(text)
}

// Validate checks the values of the configuration.
func (p *Postgres) Validate() error {
	if p.Password != "" && p.PasswordFile != "" {
		return errors.New("password and password_file exclude each other; name one of them")
	}
	if len(p.Schema) > 63 || strings.HasPrefix(p.Schema, "pg_") || strings.ContainsAny(p.Schema, "\x00\"") {
		return fmt.Errorf("schema: %q is not supported; allowed: up to 63 bytes without quotation marks, not pg_…", p.Schema)
	}
	if d := time.Duration(p.Patience); d < minPatience || d > maxPatience {
		return fmt.Errorf("patience: %v is not supported; allowed: %v to %v", d, minPatience, maxPatience)
	}
	return nil
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	storage postgres [<dsn>] {
//		dsn           <dsn>
//		password      <password>
//		password_file <path>
//		schema        <name>
//		patience      <duration>
//	}
func (p *Postgres) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if d.NextArg() {
		if p.DSN = settings.Secret(d.Val()); p.DSN == "" {
			return d.Err("the dsn is empty")
		}
		if d.NextArg() {
			return d.ArgErr()
		}
	}
	return settings.Block(d, map[string]settings.Reader{
		"dsn":           settings.One(settings.Text(&p.DSN)),
		"password":      settings.One(settings.Text(&p.Password)),
		"password_file": settings.One(settings.Text(&p.PasswordFile)),
		"schema":        settings.One(settings.Text(&p.Schema)),
		"patience":      settings.Duration(&p.Patience),
	})
}

// Key implements [storage.Opener]. It has no password.
func (p *Postgres) Key() string {
	place := p.config.Host
	if !strings.HasPrefix(place, "/") {
		place = net.JoinHostPort(place, strconv.Itoa(int(p.config.Port)))
	}
	return "postgres:" + place + "/" + p.config.Database + "/" + p.Schema
}

// Shared implements [storage.Sharer].
func (*Postgres) Shared() bool { return true }

// Now implements [storage.Clocker]. It returns the time of the database.
func (p *Postgres) Now() time.Time { return p.clock.now() }

// connectTimeout bounds the start of a connection, and the opening of a store.
const connectTimeout = 5 * time.Second

// Open implements [storage.Opener]. It creates the tables if there are none.
func (p *Postgres) Open(ctx context.Context) (storage.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := p.target().prepare(ctx); err != nil {
		return nil, err
	}
	return start(p.target(), time.Duration(p.Patience), p.clock), nil
}

// target returns how the database is reached.
func (p *Postgres) target() *target {
	return &target{config: p.config, passwordFile: p.PasswordFile, sql: statementsOf(p.Schema)}
}

// target is a database, and how it is reached.
type target struct {
	config       *pgconn.Config
	passwordFile string
	sql          statements
}

// connect returns a new connection.
func (t *target) connect(ctx context.Context) (*pgconn.PgConn, error) {
	config := t.config.Copy()
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "modelgate"
	}
	if t.passwordFile != "" {
		password, err := os.ReadFile(t.passwordFile)
		if err != nil {
			return nil, fmt.Errorf("password_file: %w", err)
		}
		config.Password = strings.TrimRight(string(password), "\r\n")
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return pgconn.ConnectConfig(ctx, config)
}

// prepare creates the tables if there are none, and returns an error if the database cannot keep
// what a store promises.
func (t *target) prepare(ctx context.Context) error {
	conn, err := t.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	rows, _, err := query(ctx, conn, t.sql.look)
	if c := code(err); c == undefinedTable || c == invalidSchema {
		err = conn.Exec(ctx, t.sql.create).Close()
		if code(err) == insufficientRight {
			return fmt.Errorf("creating the tables of the store: %w; create the schema for this user: create schema <name> authorization <user>", err)
		}
		if err != nil {
			return fmt.Errorf("creating the tables of the store: %w", err)
		}
		rows, _, err = query(ctx, conn, t.sql.look)
	}
	switch {
	case err != nil:
		return err
	case len(rows) != 1:
		return errors.New("the table layout of the store is damaged: it has no row")
	case number(rows[0][0]) != format:
		return fmt.Errorf("the tables of the store have format %d, this build reads %d: use the build that wrote them", number(rows[0][0]), format)
	case string(rows[0][1]) == "off":
		return errors.New("synchronous_commit is off for this user or database: commits that were acknowledged could be lost; set it to on")
	}
	return t.proveLock(ctx, conn)
}

// proveLock returns an error unless the write lock of one connection excludes another one. A proxy
// between the gateway and the database could connect them to different servers.
func (t *target) proveLock(ctx context.Context, holder *pgconn.PgConn) error {
	if err := holder.Exec(ctx, t.sql.beginUpdate+"; "+t.sql.lock).Close(); err != nil {
		return err
	}
	other, err := t.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(other)
	rows, _, err := query(ctx, other, t.sql.try)
	if err == nil && (len(rows) != 1 || number(rows[0][0]) != 0) {
		err = errors.New("two connections to the database hold the same lock: they reach different servers")
	}
	return errors.Join(err, holder.Exec(ctx, "rollback").Close())
}

// Interface guards
var (
	_ caddy.Provisioner     = (*Postgres)(nil)
	_ caddy.Validator       = (*Postgres)(nil)
	_ caddyfile.Unmarshaler = (*Postgres)(nil)
	_ storage.Opener        = (*Postgres)(nil)
	_ storage.Sharer        = (*Postgres)(nil)
	_ storage.Clocker       = (*Postgres)(nil)
)
