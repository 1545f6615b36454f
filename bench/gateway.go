package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// gateway is a running process of a side.
type gateway struct {
	cmd     *exec.Cmd
	address string // of the site
	admin   string // of Caddy's admin endpoint
	start   time.Duration
}

// startTimeout is the longest time until a gateway's first answer.
const startTimeout = 30 * time.Second

// start runs a gateway on one core and waits until the backend has answered a
// first call through it.
func (b *bench) start(ctx context.Context, s *site) (*gateway, error) {
	addresses, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	g := &gateway{address: addresses[0], admin: addresses[1]}
	var config bytes.Buffer
	if err := s.caddyfile.Execute(&config, map[string]any{
		"Admin": g.admin, "Address": g.address, "Backend": b.backend, "Dir": s.dir, "Free": s.free, "Memory": s.memory, "Transport": s.transport, "Running": s.running,
	}); err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "Caddyfile")
	if err := os.WriteFile(file, config.Bytes(), 0o600); err != nil {
		return nil, err
	}

	g.cmd = exec.CommandContext(ctx, b.caddy, "run", "--config", file, "--adapter", "caddyfile") //nolint:gosec // our own build
	g.cmd.Env = append(os.Environ(), "HOME="+s.dir, "XDG_DATA_HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir)
	before := time.Now()
	if err := startPinned(g.cmd, b.one); err != nil { // its output is discarded
		return nil, err
	}
	if err := g.await(ctx, s); err != nil {
		g.stop()
		return nil, err
	}
	g.start = time.Since(before)
	return g, nil
}

// await returns when the gateway has answered a call. If there is no key to
// call with or no task to query yet, it returns when the gateway listens.
func (g *gateway) await(ctx context.Context, s *site) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	at := target{Address: g.address, Keys: s.keys, Reads: s.reads, TaskPaths: s.taskPaths}
	for {
		line, err := at.dial(ctx, 0, "", smallBody(false))
		if err == nil {
			defer line.close()
			if len(s.keys) == 0 || s.finished > 0 && len(s.taskPaths) == 0 {
				return nil
			}
			return line.call()
		}
		if ctx.Err() != nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("the %s gateway does not come up: %w", s.name, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// stop sends SIGTERM to the process, and kills it if it does not end within
// some seconds.
func (g *gateway) stop() {
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(10*time.Second, func() { _ = g.cmd.Process.Kill() })
	defer timer.Stop()
	_ = g.cmd.Wait() // its results have been read
}

// awaitAdmin waits until the admin routes know the configuration, which is a
// little later than the site listens.
func (g *gateway) awaitAdmin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if _, err := g.get(ctx, "/modelgate/status"); err == nil || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func (g *gateway) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.admin+path, nil)
	if err != nil {
		return nil, err
	}
	return fetch(req)
}

func (g *gateway) post(ctx context.Context, path string, body any) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.admin+path, bytes.NewReader(marshal(body)))
	if err != nil {
		return nil, err
	}
	return fetch(req)
}

// profile writes a CPU profile of the next seconds to a file.
func (g *gateway) profile(ctx context.Context, d time.Duration, file string) error {
	text, err := g.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(d.Seconds()))))
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func fetch(req *http.Request) ([]byte, error) {
	req.Close = true
	return fetchWith(http.DefaultClient, req)
}

func fetchWith(client *http.Client, req *http.Request) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", req.Method, req.URL.Path, resp.Status, text)
	}
	return text, err
}

// freeAddresses returns unused addresses on the loopback interface. It opens all of them
// before it closes any, because the kernel may return one port twice in a row. Caddy would
// then let site and admin endpoint share it.
func freeAddresses(n int) ([]string, error) {
	addresses := make([]string, n)
	for i := range addresses {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		addresses[i] = listener.Addr().String()
	}
	return addresses, nil
}

// pause waits for d, or returns why ctx ended earlier.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
