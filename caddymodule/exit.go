package caddymodule

import (
	"context"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
)

// exiting ends when the process begins to exit, which it does once.
var exiting, beginExit = context.WithCancel(context.Background())

// OnExit calls fn when the process begins to exit, unless stop is called first. It is
// for requests that wait: the servers stop only when all requests are answered, and
// Caddy's own hook comes after that. Handlers that use it call [WatchExit] when they are
// provisioned.
func OnExit(fn func()) (stop func() bool) { return context.AfterFunc(exiting, fn) }

// WatchExit subscribes to the stop of the configuration that is being provisioned.
func WatchExit(ctx caddy.Context) error {
	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the events app: %w", err)
	}
	return events.(*caddyevents.App).On("stopping", exitWatch{})
}

// exitWatch handles the event that a configuration stops. It is empty, because Caddy
// logs it at debug level.
type exitWatch struct{}

// Handle implements caddyevents.Handler.
func (exitWatch) Handle(context.Context, caddy.Event) error {
	if caddy.Exiting() { // else another configuration has taken over
		beginExit()
	}
	return nil
}

// Interface guard
var _ caddyevents.Handler = exitWatch{}
