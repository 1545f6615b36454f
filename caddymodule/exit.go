package caddymodule

import (
	"context"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
)

// exiting is canceled once, when the process begins to exit.
var exiting, beginExit = context.WithCancel(context.Background())

// OnExit calls fn when the process begins to exit, unless stop is called first. It is
// for requests that wait: the servers stop only when all requests are answered, and
// Caddy runs its own hook after that. Handlers that use OnExit call [WatchExit] when they
// are provisioned.
func OnExit(fn func()) (stop func() bool) { return context.AfterFunc(exiting, fn) }

// WatchExit subscribes to the stop of the configuration that is being provisioned.
func WatchExit(ctx caddy.Context) error {
	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the events app: %w", err)
	}
	return events.(*caddyevents.App).On("stopping", exitWatch{})
}

// exitWatch handles Caddy's event stopping. It has no fields, because Caddy logs it at
// debug level.
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
