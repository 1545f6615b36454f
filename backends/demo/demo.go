// Package demo is a generation service without an account anywhere: it draws
// what it is asked for, for trying and testing the whole way of a task.
//
// This file is the module a configuration names; job.go is what it promises
// about a job, words.go what a prompt can rehearse; package film draws.
package demo

import (
	"bytes"
	"context"
	"fmt"
	"image/jpeg"
	"image/png"
	"io"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/demo/film"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Demo))
}

// Demo is a generation service that needs no account and no network. It takes
// every job, and after a while has an image or a video for it, which it draws
// from the words of the prompt: the same words are always the same picture. The
// files are genuine, PNG or JPEG and H.264 in MP4.
//
// A prompt can hold words that rehearse a bad day:
//
//	demo:fail         the model fails
//	demo:unsafe       a safety check refuses the content
//	demo:overloaded   the service has no room for it in the end
//	demo:slow         it takes long; demo:slow=90s so long
//	demo:stuck        its state is a word nobody has heard, until it is done
//	demo:busy         the submission is put off once
//	demo:refuse       the submission is refused
//	demo:doubt        the submission is taken and not confirmed
//	demo:lost         the submission is neither taken nor refused
//
// It remembers nothing that a restart of the process would lose: all that it
// knows of a job stands in the job's reference.
type Demo struct {
	// Takes is how long a job takes, a quarter of it in the queue; at most 1 hour.
	// Default: 4s.
	Takes caddy.Duration `json:"takes,omitempty"`

	now func() time.Time

	mu        sync.Mutex
	cancelled map[string]time.Time // references, with when they may be forgotten
	putOff    map[string]time.Time // tokens of jobs that were busy once, likewise
}

// Bounds of how long a job takes.
const (
	defaultTakes = 4 * time.Second
	maxTakes     = time.Hour
)

// CaddyModule returns the Caddy module information.
func (*Demo) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "modelgate.backends.demo",
		New: func() caddy.Module { return new(Demo) },
	}
}

// Provision checks how long a job takes.
func (d *Demo) Provision(caddy.Context) error {
	if d.Takes == 0 {
		d.Takes = caddy.Duration(defaultTakes)
	}
	if d.Takes < 0 || time.Duration(d.Takes) > maxTakes {
		return fmt.Errorf("takes is %s: a job takes more than nothing and at most %s", time.Duration(d.Takes), maxTakes)
	}
	if d.now == nil {
		d.now = time.Now
	}
	d.cancelled = make(map[string]time.Time)
	d.putOff = make(map[string]time.Time)
	return nil
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	adapter demo {
//		takes <duration>
//	}
func (d *Demo) UnmarshalCaddyfile(tokens *caddyfile.Dispenser) error {
	return settings.Words{
		"takes": func(value string) error {
			takes, err := caddy.ParseDuration(value)
			if err != nil || takes <= 0 || takes > maxTakes {
				return fmt.Errorf("takes is a duration up to %s, such as 4s", maxTakes)
			}
			d.Takes = caddy.Duration(takes)
			return nil
		},
	}.Unmarshal(tokens)
}

// Submit implements backends.Backend.
func (d *Demo) Submit(ctx context.Context, job backends.Job) (backends.Ref, error) {
	if err := ctx.Err(); err != nil {
		return backends.Ref{}, &backends.Error{
			Kind: backends.Busy, Reason: backends.UpstreamBusy, Message: "the demo was not asked in time", Detail: err.Error(),
		}
	}
	r, err := rehearse(job.Prompt)
	if err != nil {
		return backends.Ref{}, err
	}
	switch {
	case r.refuse:
		return backends.Ref{}, backends.Invalid("prompt", "the demo was asked to refuse this prompt")
	case r.busy && d.first(d.putOff, job.Token):
		return backends.Ref{}, &backends.Error{
			Kind: backends.Busy, Reason: backends.UpstreamBusy, Message: "the demo was asked to be busy once", RetryAfter: time.Second,
		}
	case r.doubt, r.lost:
		return backends.Ref{}, &backends.Error{
			Kind: backends.Doubtful, Reason: backends.UpstreamError, Message: "the demo was asked not to say whether it has taken the job",
		}
	}
	return d.take(job, r)
}

// Reconcile implements backends.Reconciler.
func (d *Demo) Reconcile(_ context.Context, job backends.Job) (backends.Ref, error) {
	r, err := rehearse(job.Prompt)
	if err != nil {
		return backends.Ref{}, err
	}
	if !r.doubt {
		return backends.Ref{}, gone()
	}
	return d.take(job, r)
}

// Poll implements backends.Backend.
func (d *Demo) Poll(_ context.Context, ref backends.Ref) (backends.Status, error) {
	j, err := parse(ref.ID)
	if err != nil {
		return backends.Status{}, err
	}
	d.mu.Lock()
	_, ended := d.cancelled[ref.ID]
	d.mu.Unlock()
	if ended {
		return failed(backends.TaskCancelled), nil
	}
	return j.status(d.now()), nil
}

// Cancel implements backends.Canceler.
func (d *Demo) Cancel(_ context.Context, ref backends.Ref) error {
	j, err := parse(ref.ID)
	if err != nil {
		return err
	}
	if state := j.status(d.now()).State; state == backends.Succeeded || state == backends.Failed {
		return &backends.Error{
			Kind: backends.Refused, Reason: backends.InvalidInput, Message: "the job is over: it is " + string(state),
		}
	}
	d.first(d.cancelled, ref.ID)
	return nil
}

// Check implements backends.Checker. The demo is always there.
func (*Demo) Check(context.Context) error { return nil }

// OnlyBytes implements backends.Fetcher.
func (*Demo) OnlyBytes() bool { return true }

// quality is that of JPEG files.
const quality = 90

// Fetch implements backends.Fetcher. The file is drawn when it is asked for.
func (d *Demo) Fetch(ctx context.Context, ref backends.Ref, index int) (io.ReadCloser, backends.Content, error) {
	j, err := parse(ref.ID)
	if err != nil {
		return nil, backends.Content{}, err
	}
	if status := j.status(d.now()); index < 0 || index >= len(status.Results) {
		return nil, backends.Content{}, gone()
	}
	scene := film.NewScene(fmt.Appendf(nil, "%s %d", j.Seed, index), j.Width, j.Height)
	if j.Kind != backends.Image {
		return io.NopCloser(unless(ctx, scene.Film(j.Length))), backends.Content{Type: "video/mp4", Size: -1}, nil
	}
	var file bytes.Buffer
	if j.Format == "jpeg" {
		err = jpeg.Encode(&file, film.Image{Scene: scene}, &jpeg.Options{Quality: quality})
	} else {
		err = png.Encode(&file, film.Image{Scene: scene})
	}
	if err != nil {
		return nil, backends.Content{}, fmt.Errorf("drawing: %w", err)
	}
	return io.NopCloser(unless(ctx, &file)), backends.Content{Type: "image/" + j.Format, Size: int64(file.Len())}, nil
}

// maxNoted bounds what is noted in memory; more than that is forgotten early.
const maxNoted = 10_000

// first tells whether an id is new in a set, and notes it there for as long as
// the longest job takes.
func (d *Demo) first(set map[string]time.Time, id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	if _, noted := set[id]; noted {
		return false
	}
	if len(set) >= maxNoted {
		for id, end := range set {
			if now.After(end) {
				delete(set, id)
			}
		}
		if len(set) >= maxNoted {
			clear(set)
		}
	}
	set[id] = now.Add(maxTakes)
	return true
}

// unless returns a reader that ends with its context.
func unless(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(b []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(b)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// Interface guards
var (
	_ caddy.Module          = (*Demo)(nil)
	_ caddy.Provisioner     = (*Demo)(nil)
	_ caddyfile.Unmarshaler = (*Demo)(nil)
	_ backends.Backend      = (*Demo)(nil)
	_ backends.Canceler     = (*Demo)(nil)
	_ backends.Fetcher      = (*Demo)(nil)
	_ backends.Reconciler   = (*Demo)(nil)
	_ backends.Checker      = (*Demo)(nil)
)
