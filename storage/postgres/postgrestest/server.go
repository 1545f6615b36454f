// Package postgrestest starts PostgreSQL servers for tests. [Start] returns a [Server] that
// belongs to one test. Only tests import the package.
package postgrestest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// Required is the environment variable that makes a missing PostgreSQL an error, if it is
// `required`; otherwise the test is skipped.
const Required = "CI_POSTGRES"

// Server is a PostgreSQL server with a directory and a socket of its own.
type Server struct {
	tb        testing.TB
	programs  string // the directory of initdb and pg_ctl
	dir       string // has the data, the socket and the log
	sync      string // on or off
	databases atomic.Int64
}

// Start starts a server, and stops it when the test ends. It does not sync, so it keeps its
// data when it is killed, not when the machine is. If there is no PostgreSQL on this machine,
// the test is skipped.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, "off")
}

// StartDurable is Start with a server that syncs each commit, for measurements.
func StartDurable(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, "on")
}

func start(tb testing.TB, sync string) *Server {
	tb.Helper()
	programs, err := find()
	if err != nil {
		if os.Getenv(Required) == "required" {
			tb.Fatal(err)
		}
		tb.Skipf("%v; install PostgreSQL 13 or newer to run this test", err)
	}
	dir, err := os.MkdirTemp("", "pg") // a short name: the path of a socket has at most 107 bytes
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{tb: tb, programs: programs, dir: dir, sync: sync}
	if err := giveAway(dir); err != nil {
		tb.Fatal(err)
	}
	s.mustRun("initdb", "--no-sync", "--auth=trust", "--username=gateway", "--encoding=UTF8", "--locale=C", "-D", s.data())
	s.Start()
	tb.Cleanup(func() { _ = s.run("pg_ctl", "stop", "-D", s.data(), "-m", "immediate", "-w") })
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Start starts the server after a Stop.
func (s *Server) Start() {
	s.tb.Helper()
	s.mustRun("pg_ctl", "start", "-D", s.data(), "-w", "-l", filepath.Join(s.dir, "log"), "-o",
		"-c listen_addresses='' -c unix_socket_directories='"+s.dir+"' -c fsync="+s.sync+" -c max_connections=300")
}

// Stop stops the server at once, as a crash does.
func (s *Server) Stop() {
	s.tb.Helper()
	s.mustRun("pg_ctl", "stop", "-D", s.data(), "-m", "immediate", "-w")
}

// Database creates a database and returns its DSN.
func (s *Server) Database() string {
	s.tb.Helper()
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	s.mustRun("createdb", "-h", s.dir, "-U", "gateway", name)
	return s.DSN(name)
}

// DSN returns the DSN of a database.
func (s *Server) DSN(database string) string {
	return "host=" + s.dir + " user=gateway dbname=" + database
}

// Query runs statements in a database by psql, and returns what it prints.
func (s *Server) Query(dsn, sql string) string {
	s.tb.Helper()
	out, err := s.command("psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-c", sql).CombinedOutput()
	if err != nil {
		s.tb.Fatalf("psql: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *Server) mustRun(program string, args ...string) {
	s.tb.Helper()
	if err := s.run(program, args...); err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		s.tb.Fatalf("%v\n%s", err, log)
	}
}

// run runs a program. Its output is a file, because a server keeps a pipe open.
func (s *Server) run(program string, args ...string) error {
	out, err := os.CreateTemp("", "pg-out-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := s.command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w: %s", program, err, text)
	}
	return nil
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.programs, program), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PGHOST="+s.dir, "PGPASSWORD=", "LC_ALL=C")
	drop(cmd)
	return cmd
}

// find returns the directory of PostgreSQL's programs: that of pg_config, of PATH, or the
// newest where Debian installs them.
func find() (string, error) {
	var places []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		places = append(places, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			places = append(places, filepath.Dir(path))
		}
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for i := range debian {
		places = append(places, debian[len(debian)-1-i])
	}
	for _, place := range places {
		if _, err := os.Stat(filepath.Join(place, "initdb")); err == nil {
			return place, nil
		}
	}
	return "", errors.New("there is no PostgreSQL on this machine")
}
