package demo

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// rehearsal is what a prompt asked to be rehearsed; the zero value is a good day.
type rehearsal struct {
	status   int           // answer with this error
	html     bool          // answer with a page of HTML
	empty    bool          // answer with nothing
	slow     time.Duration // wait before the first byte
	stall    time.Duration // be silent in the middle of a stream
	breakOff bool          // break the connection off in the middle
	fail     bool          // send an error event in the middle of a stream
	noUsage  bool          // keep usage to oneself
	cached   bool          // count input as read from the cache
	long     int           // say this many pieces
	gzip     bool          // compress a JSON answer
}

const (
	maxPause     = time.Hour
	defaultSlow  = 3 * time.Second
	defaultStall = time.Minute
)

// word is one row of the table of rehearsal words.
type word struct {
	name    string
	meaning string
	// set notes the word in r. The value is what followed "=", if anything did.
	set func(r *rehearsal, value string) error
}

// table is every word that can follow "demo:". The documentation of Demo lists
// the same words; a test keeps the two together.
var table = []word{
	{"401", "a vendor refuses the operator's key", status(http.StatusUnauthorized)},
	{"429", "too many requests, with Retry-After", status(http.StatusTooManyRequests)},
	{"500", "an error inside the vendor", status(http.StatusInternalServerError)},
	{"529", "the vendor is overloaded", status(statusOverloaded)},
	{"html", "502 with a page of HTML", mark(func(r *rehearsal) *bool { return &r.html })},
	{"empty", "200 without a body", mark(func(r *rehearsal) *bool { return &r.empty })},
	{"slow", "the first byte comes late", pause(defaultSlow, func(r *rehearsal) *time.Duration { return &r.slow })},
	{"stall", "a stream falls silent", pause(defaultStall, func(r *rehearsal) *time.Duration { return &r.stall })},
	{"break", "the connection breaks off", mark(func(r *rehearsal) *bool { return &r.breakOff })},
	{"error", "a stream ends with an error event", mark(func(r *rehearsal) *bool { return &r.fail })},
	{"nousage", "no usage is reported", mark(func(r *rehearsal) *bool { return &r.noUsage })},
	{"cached", "input counts as read from the cache", mark(func(r *rehearsal) *bool { return &r.cached })},
	{"long", "an answer of N pieces", setLong},
	{"gzip", "a JSON answer is compressed", mark(func(r *rehearsal) *bool { return &r.gzip })},
}

// spoken finds words in a text. A value ends before punctuation, so that a word
// may end a sentence.
var spoken = regexp.MustCompile(`\bdemo:([a-z0-9]+)(?:=([0-9a-z.-]*[0-9a-z]))?`)

// rehearse reads the words in text. Unknown ones are left alone: they are text.
func rehearse(text string) (rehearsal, error) {
	var r rehearsal
	for _, found := range spoken.FindAllStringSubmatch(text, -1) {
		for _, w := range table {
			if w.name != found[1] {
				continue
			}
			if err := w.set(&r, found[2]); err != nil {
				return rehearsal{}, invalid("", "demo:%s (%s): %v.", w.name, w.meaning, err)
			}
		}
	}
	return r, nil
}

func status(code int) func(*rehearsal, string) error {
	return func(r *rehearsal, value string) error {
		r.status = code
		return noValue(value)
	}
}

func mark(field func(*rehearsal) *bool) func(*rehearsal, string) error {
	return func(r *rehearsal, value string) error {
		*field(r) = true
		return noValue(value)
	}
}

func pause(otherwise time.Duration, field func(*rehearsal) *time.Duration) func(*rehearsal, string) error {
	return func(r *rehearsal, value string) error {
		*field(r) = otherwise
		if value == "" {
			return nil
		}
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 || d > maxPause {
			return fmt.Errorf("%q is not a duration up to %s, such as 500ms", value, maxPause)
		}
		*field(r) = d
		return nil
	}
}

func setLong(r *rehearsal, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxSpeech {
		return fmt.Errorf("%q is not a number of pieces from 1 to %d", value, maxSpeech)
	}
	r.long = n
	return nil
}

func noValue(value string) error {
	if value != "" {
		return fmt.Errorf("takes no value, not %q", value)
	}
	return nil
}
