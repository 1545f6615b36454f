package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// client sends requests to the admin endpoint of a running Caddy.
type client struct {
	http   http.Client
	origin string
}

// socketOrigin is the origin of requests over a socket. HTTP needs a host, but the
// server ignores it.
const socketOrigin = "http://127.0.0.1"

// newClient returns a client for the address that --address names.
func newClient(cmd *cobra.Command) (*client, error) {
	address, _ := cmd.Flags().GetString("address")
	address = cmp.Or(address, caddy.DefaultAdminListen)
	address = strings.TrimPrefix(strings.TrimSuffix(address, "/"), "http://")
	at, err := caddy.ParseNetworkAddress(address)
	if err != nil || at.PortRangeSize() > 1 {
		return nil, errUsage("--address %q is not an address such as localhost:2019 or unix//run/caddy.sock", address)
	}
	c := &client{origin: "http://" + at.JoinHostPort(0)}
	if at.IsUnixNetwork() {
		c.origin = socketOrigin
	}
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			host, _, _ := strings.Cut(at.JoinHostPort(0), "|") // permission bits of a socket
			return new(net.Dialer).DialContext(ctx, at.Network, host)
		},
	}
	return c, nil
}

// call sends one request and decodes the answer into out. If the server refuses the
// request, the error has the exit code.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return errNotAdmin
	}
	return nil
}

// send sends one request without a body to the admin endpoint of --address.
func (c *call) send(method, path string, out any) error {
	client, err := newClient(c.Command)
	if err != nil {
		return err
	}
	return client.call(c.Context(), method, path, nil, out)
}

// send sends one request and returns the answer to a successful one.
func (c *client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.origin+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.origin != socketOrigin {
		// A server that checks origins requires the header, but refuses it over a socket.
		req.Header.Set("Origin", c.origin)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, errExit{exitUnreachable, fmt.Errorf("the admin endpoint of Caddy cannot be reached: %w: start Caddy, or give its address with --address or CADDY_ADMIN", err)}
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var refusal adminapi.Error
	if json.Unmarshal(text, &refusal) != nil || refusal.Code == "" {
		return nil, errExit{exitRefused, fmt.Errorf("the admin endpoint answered %s: %s", resp.Status, strings.TrimSpace(string(text)))}
	}
	return nil, errExit{exitCodeOf(refusal.Code), errors.New(refusal.Message)}
}

// exitCodeOf returns the exit code for a fault of the server.
func exitCodeOf(code fault.Code) int {
	switch status := (&fault.Fault{Code: code}).Status(); {
	case status == http.StatusNotFound:
		return exitNotFound
	case status < 500:
		return exitRefused
	}
	return exitFailed
}
