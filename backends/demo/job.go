package demo

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/backends/demo/film"
)

// job is the state of a job. It is encoded in the reference, so its names are short.
type job struct {
	Token  string           `json:"t"` // the beginning of the job's token, which distinguishes jobs
	Seed   string           `json:"s"` // determines the picture
	Kind   backends.JobKind `json:"k"`
	Began  int64            `json:"b"` // Unix milliseconds
	Takes  int64            `json:"d"` // milliseconds
	Width  int              `json:"w"`
	Height int              `json:"h"`
	Length float64          `json:"l,omitempty"` // seconds
	Count  int              `json:"n"`
	Format string           `json:"f"`
	End    ending           `json:"e,omitempty"`
}

// Limits and defaults of one job.
const (
	maxCount      = 10
	defaultLength = 5
	tokenBegin    = 12
	seedBytes     = 6
)

// accept returns the reference of a new job.
func (d *Demo) accept(from backends.Job, r simulation) (backends.Ref, error) {
	// The picture does not depend on the user or the time.
	seen := []any{from.Model, from.Prompt, from.NegativePrompt, from.Inputs, from.Seed}
	if from.Source != nil {
		if earlier, err := parse(from.Source.ID); err == nil {
			seen = append(seen, earlier.Seed)
		}
	}
	input, err := json.Marshal(seen)
	if err != nil {
		return backends.Ref{}, backends.Invalid("prompt", "the job cannot be read")
	}
	seed := sha256.Sum256(input)
	j := job{
		Token:  from.Token[:min(len(from.Token), tokenBegin)],
		Seed:   hex.EncodeToString(seed[:seedBytes]),
		Kind:   from.Kind,
		Began:  d.now().UnixMilli(),
		Takes:  cmp.Or(r.slow, time.Duration(d.Takes)).Milliseconds(),
		Count:  min(from.Choices(), maxCount),
		Format: "mp4",
		End:    r.end,
	}
	width, height := from.Output.Size()
	j.Width, j.Height = film.NewScene(nil, width, height).Size()
	if from.Kind == backends.Image {
		j.Format = cmp.Or(from.Output.Format, "png")
	} else {
		j.Length = min(cmp.Or(from.Output.Duration, defaultLength), film.MaxLength)
	}
	text, err := json.Marshal(j)
	if err != nil {
		return backends.Ref{}, backends.Invalid("output", "the job cannot be written as JSON")
	}
	return backends.Ref{ID: base64.RawURLEncoding.EncodeToString(text)}, nil
}

// parse decodes a reference.
func parse(id string) (job, error) {
	var j job
	text, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || json.Unmarshal(text, &j) != nil || j.Takes <= 0 || j.Count < 1 || j.Count > maxCount || j.Seed == "" {
		return job{}, gone()
	}
	return j, nil
}

func gone() error {
	return &backends.Error{Kind: backends.Gone, Reason: backends.UpstreamError, Message: "the demo does not know this job"}
}

// words are the demo's status words.
var words = map[backends.State]string{
	backends.Queued: "waiting", backends.Running: "drawing", backends.Succeeded: "drawn", backends.Failed: "torn up",
}

// unknownWord is the status word of a job that is stuck.
const unknownWord = "daydreaming"

// status returns the status of the job. It is queued for a quarter of its time.
func (j job) status(now time.Time) backends.Status {
	spent := now.UnixMilli() - j.Began
	progress := int(min(max(spent*100/j.Takes, 0), 99))
	state := backends.Running
	switch {
	case spent >= j.Takes:
		if reason, fails := failures[j.End]; fails {
			return failed(reason)
		}
		return backends.Status{State: backends.Succeeded, Word: words[backends.Succeeded], Progress: 100, Results: j.results()}
	case j.End == stuck:
		return backends.Status{State: backends.Unknown, Word: unknownWord}
	case spent < j.Takes/4:
		state = backends.Queued
	}
	return backends.Status{State: state, Word: words[state], Progress: progress}
}

func (j job) results() []backends.Result {
	results := make([]backends.Result, j.Count)
	for i := range results {
		results[i] = backends.Result{
			Type: j.Kind.Makes(), Duration: j.Length, Width: j.Width, Height: j.Height, Format: j.Format,
		}
	}
	return results
}

func failed(reason backends.Reason) backends.Status {
	return backends.Status{
		State: backends.Failed, Word: words[backends.Failed],
		Failure: backends.Fail(reason, "", failureMessage[reason]),
	}
}
