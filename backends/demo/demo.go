// Package demo is a generation service inside the gateway. It generates images
// and videos, for demonstrations and tests without an account at a service.
//
// [Demo] is the Caddy module. job.go has the state of a job, words.go the words
// of a prompt that simulate failures; package film generates the files.
package demo

import (
	"bytes"
	"cmp"
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

// Demo is a generation service that needs no account and no network. It accepts
// every job and generates an image or a video from the words of the prompt: the
// same words always give the same picture. The files are PNG, JPEG, or H.264 in
// MP4.
//
// Words of a prompt simulate failures:
//
//	demo:fail         the model fails
//	demo:unsafe       a safety check refuses the content
//	demo:overloaded   the job fails because the service is overloaded
//	demo:slow         the job takes 30 seconds; demo:slow=90s sets the duration
//	demo:stuck        the job has an unknown status word until it succeeds
//	demo:busy         the first submission is refused as busy
//	demo:refuse       the submission is refused
//	demo:doubt        the submission is accepted but not confirmed
//	demo:lost         the submission is neither accepted nor refused
//
// The reference of a job contains its state, so jobs continue after a restart
// of the process.
type Demo struct {
	// Takes is how long a job takes, at most 1 hour. The job is queued for the
	// first quarter of this time. Default: 4s.
	Takes caddy.Duration `json:"takes,omitempty"`

	now func() time.Time

	mu        sync.Mutex
	cancelled map[string]time.Time // when the entry may be removed, by reference of a cancelled job
	postponed map[string]time.Time // when the entry may be removed, by token of a job that was refused as busy
}

// Limits of the duration of a job.
const (
	defaultTakes = 4 * time.Second
	maxTakes     = time.Hour
)

// CaddyModule returns the Caddy module information.
func (*Demo) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.demo", New: func() caddy.Module { return new(Demo) }}
}

// Provision checks the duration of jobs.
func (d *Demo) Provision(caddy.Context) error {
	d.Takes = cmp.Or(d.Takes, caddy.Duration(defaultTakes))
	if d.Takes < 0 || time.Duration(d.Takes) > maxTakes {
		return fmt.Errorf("takes: %s is out of range; allowed: more than 0 and at most %s", time.Duration(d.Takes), maxTakes)
	}
	if d.now == nil {
		d.now = time.Now
	}
	d.cancelled = make(map[string]time.Time)
	d.postponed = make(map[string]time.Time)
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
				return fmt.Errorf("takes: must be a duration up to %s, such as 4s", maxTakes)
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
			Kind: backends.Busy, Reason: backends.UpstreamBusy, Message: "the call to the demo was cancelled", Detail: err.Error(),
		}
	}
	r, err := simulate(job.Prompt)
	if err != nil {
		return backends.Ref{}, err
	}
	switch {
	case r.refuse:
		return backends.Ref{}, backends.Invalid("prompt", "demo:refuse refuses this prompt")
	case r.busy && d.add(d.postponed, job.Token):
		return backends.Ref{}, &backends.Error{
			Kind: backends.Busy, Reason: backends.UpstreamBusy, Message: "demo:busy refuses the first submission", RetryAfter: time.Second,
		}
	case r.doubt, r.lost:
		return backends.Ref{}, &backends.Error{
			Kind: backends.Unconfirmed, Reason: backends.UpstreamError, Message: "the demo did not confirm whether it has accepted the job",
		}
	}
	return d.accept(job, r)
}

// Remix implements backends.Remixer: it draws another picture, which depends on the earlier one.
func (d *Demo) Remix(ctx context.Context, source backends.Ref, job backends.Job) (backends.Ref, error) {
	if _, err := parse(source.ID); err != nil {
		return backends.Ref{}, backends.Invalid("", "the demo does not know the video")
	}
	return d.Submit(ctx, job)
}

// Reconcile implements backends.Reconciler. The demo keeps no list of jobs. It has accepted every
// submission whose outcome the gateway does not know, for example because the gateway was killed,
// unless a word of the prompt says otherwise.
func (d *Demo) Reconcile(_ context.Context, job backends.Job) (backends.Ref, error) {
	r, err := simulate(job.Prompt)
	if err != nil {
		return backends.Ref{}, err
	}
	if r.lost || r.refuse || r.busy && !r.doubt {
		return backends.Ref{}, gone()
	}
	return d.accept(job, r)
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
			Kind: backends.Refused, Reason: backends.InvalidInput, Message: "the job has already ended: it is " + string(state),
		}
	}
	d.add(d.cancelled, ref.ID)
	return nil
}

// Check implements backends.Checker. It always returns nil.
func (*Demo) Check(context.Context) error { return nil }

// OnlyBytes implements backends.Fetcher.
func (*Demo) OnlyBytes() bool { return true }

// quality is the quality of JPEG files.
const quality = 90

// Fetch implements backends.Fetcher. It draws the file at each request.
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
		return io.NopCloser(withContext(ctx, scene.Film(j.Length))), backends.Content{Type: "video/mp4", Size: -1}, nil
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
	return io.NopCloser(withContext(ctx, &file)), backends.Content{Type: "image/" + j.Format, Size: int64(file.Len())}, nil
}

// maxIDs is the maximum size of each set. If a set is full of ids that have not
// expired, all of them are removed.
const maxIDs = 10_000

// add adds an id to a set for the longest duration of a job, and reports whether
// it was new.
func (d *Demo) add(set map[string]time.Time, id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	if _, ok := set[id]; ok {
		return false
	}
	if len(set) >= maxIDs {
		for id, end := range set {
			if now.After(end) {
				delete(set, id)
			}
		}
		if len(set) >= maxIDs {
			clear(set)
		}
	}
	set[id] = now.Add(maxTakes)
	return true
}

// withContext returns a reader that fails after its context ends.
func withContext(ctx context.Context, r io.Reader) io.Reader {
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
	_ caddy.Provisioner     = (*Demo)(nil)
	_ caddyfile.Unmarshaler = (*Demo)(nil)
	_ backends.Backend      = (*Demo)(nil)
	_ backends.Canceler     = (*Demo)(nil)
	_ backends.Remixer      = (*Demo)(nil)
	_ backends.Fetcher      = (*Demo)(nil)
	_ backends.Reconciler   = (*Demo)(nil)
	_ backends.Checker      = (*Demo)(nil)
)
