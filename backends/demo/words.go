package demo

import (
	"fmt"
	"regexp"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
)

// rehearsal is what a prompt asks to be simulated; the zero value is no failure.
type rehearsal struct {
	end    ending
	slow   time.Duration // takes so long
	busy   bool          // put the submission off once
	refuse bool          // refuse the submission
	doubt  bool          // take the submission and do not say so
	lost   bool          // do not take the submission and do not say so
}

// ending is how a job fails.
type ending string

// The endings.
const (
	fail       ending = "fail"
	unsafe     ending = "unsafe"
	overloaded ending = "overloaded"
	stuck      ending = "stuck" // it succeeds, after an unknown word for its state
)

// failures are the endings that are failures.
var failures = map[ending]backends.Reason{
	fail:       backends.ModelFailed,
	unsafe:     backends.ContentRejected,
	overloaded: backends.UpstreamBusy,
}

// said is the message of a failure.
var said = map[backends.Reason]string{
	backends.ModelFailed:     "the demo was asked to fail",
	backends.ContentRejected: "the demo was asked to find this content unsafe",
	backends.UpstreamBusy:    "the demo was asked to have no room",
	backends.TaskCancelled:   "cancelled",
}

// defaultSlow is how long a slow job takes.
const defaultSlow = 30 * time.Second

// table has every word that can follow "demo:". The documentation of Demo lists the same
// words; a test compares them.
var table = map[string]func(*rehearsal){
	"fail":       func(r *rehearsal) { r.end = fail },
	"unsafe":     func(r *rehearsal) { r.end = unsafe },
	"overloaded": func(r *rehearsal) { r.end = overloaded },
	"stuck":      func(r *rehearsal) { r.end = stuck },
	"slow":       func(r *rehearsal) { r.slow = defaultSlow },
	"busy":       func(r *rehearsal) { r.busy = true },
	"refuse":     func(r *rehearsal) { r.refuse = true },
	"doubt":      func(r *rehearsal) { r.doubt = true },
	"lost":       func(r *rehearsal) { r.lost = true },
}

// spoken finds words in a text. A value ends before punctuation, so that a word
// may end a sentence.
var spoken = regexp.MustCompile(`\bdemo:([a-z]+)(?:=([0-9a-z.-]*[0-9a-z]))?`)

// rehearse reads the words in a prompt. Unknown ones are left alone: they are
// text.
func rehearse(prompt string) (rehearsal, error) {
	var r rehearsal
	for _, found := range spoken.FindAllStringSubmatch(prompt, -1) {
		set, known := table[found[1]]
		if !known {
			continue
		}
		set(&r)
		switch value := found[2]; {
		case value == "":
		case found[1] != "slow":
			return rehearsal{}, backends.Invalid("prompt", fmt.Sprintf("demo:%s takes no value, not %q", found[1], value))
		default:
			slow, err := time.ParseDuration(value)
			if err != nil || slow < time.Millisecond || slow > maxTakes {
				return rehearsal{}, backends.Invalid("prompt", fmt.Sprintf("demo:slow=%s: want a duration up to %s, such as 90s", value, maxTakes))
			}
			r.slow = slow
		}
	}
	return r, nil
}
