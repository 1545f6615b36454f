package demo

import (
	"fmt"
	"regexp"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
)

// simulation is the set of failures that a prompt requests.
type simulation struct {
	end    ending
	slow   time.Duration // duration of the job
	busy   bool          // reject the first submission as busy
	refuse bool          // refuse the submission
	doubt  bool          // accept the submission and return an Unconfirmed error
	lost   bool          // do not accept the submission and return an Unconfirmed error
}

// ending is how a job ends; empty if it succeeds.
type ending string

// The endings.
const (
	fail       ending = "fail"
	unsafe     ending = "unsafe"
	overloaded ending = "overloaded"
	stuck      ending = "stuck" // the job succeeds after an unknown status word
)

// failures are the endings that fail the job.
var failures = map[ending]backends.Reason{
	fail:       backends.ModelFailed,
	unsafe:     backends.ContentRejected,
	overloaded: backends.UpstreamBusy,
}

// failureMessage is the service's text of a failure.
var failureMessage = map[backends.Reason]string{
	backends.ModelFailed:     "demo:fail fails this job",
	backends.ContentRejected: "demo:unsafe refuses this content",
	backends.UpstreamBusy:    "demo:overloaded fails this job",
	backends.TaskCancelled:   "cancelled",
}

// defaultSlow is the duration of a slow job.
const defaultSlow = 30 * time.Second

// table has every word that can follow "demo:". The documentation of Demo lists the same
// words; a test compares them.
var table = map[string]func(*simulation){
	"fail":       func(r *simulation) { r.end = fail },
	"unsafe":     func(r *simulation) { r.end = unsafe },
	"overloaded": func(r *simulation) { r.end = overloaded },
	"stuck":      func(r *simulation) { r.end = stuck },
	"slow":       func(r *simulation) { r.slow = defaultSlow },
	"busy":       func(r *simulation) { r.busy = true },
	"refuse":     func(r *simulation) { r.refuse = true },
	"doubt":      func(r *simulation) { r.doubt = true },
	"lost":       func(r *simulation) { r.lost = true },
}

// wordForm matches words in a text. A value ends before punctuation, so that a
// word may end a sentence.
var wordForm = regexp.MustCompile(`\bdemo:([a-z]+)(?:=([0-9a-z.-]*[0-9a-z]))?`)

// simulate parses the words in a prompt. Unknown words are ordinary text.
func simulate(prompt string) (simulation, error) {
	var r simulation
	for _, found := range wordForm.FindAllStringSubmatch(prompt, -1) {
		set, known := table[found[1]]
		if !known {
			continue
		}
		set(&r)
		switch value := found[2]; {
		case value == "":
		case found[1] != "slow":
			return simulation{}, backends.Invalid("prompt", fmt.Sprintf("demo:%[1]s=%[2]s is not supported; allowed: demo:%[1]s", found[1], value))
		default:
			slow, err := time.ParseDuration(value)
			if err != nil || slow < time.Millisecond || slow > maxTakes {
				return simulation{}, backends.Invalid("prompt", fmt.Sprintf("demo:slow=%s must be a duration up to %s, such as 90s", value, maxTakes))
			}
			r.slow = slow
		}
	}
	return r, nil
}
