package demo

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// rehearsal is what a prompt asks to be simulated; the zero value is no failure.
type rehearsal struct {
	status   int           // answer with this error
	html     bool          // answer with a page of HTML
	empty    bool          // answer with nothing
	slow     time.Duration // wait before the first byte
	stall    time.Duration // be silent in the middle of a stream
	breakOff bool          // break the connection off in the middle
	fail     bool          // send an error event in the middle of a stream
	noUsage  bool          // report no usage
	cached   bool          // count input as read from the cache
	long     int           // say this many pieces
	gzip     bool          // compress a JSON answer
}

// maxPause bounds slow and stall.
const maxPause = time.Hour

// word is one row of the table of rehearsal words.
type word struct {
	name    string
	meaning string
	// field returns the field that the word sets: a *bool, which takes no value, a
	// *time.Duration or an *int.
	field     func(r *rehearsal) any
	otherwise int           // an *int that takes no value is this
	pause     time.Duration // a *time.Duration without a value is this
}

// table has every word that can follow "demo:". The documentation of Demo lists the same
// words; a test compares them.
var table = []word{
	{name: "401", meaning: "a vendor refuses the operator's key", field: func(r *rehearsal) any { return &r.status }, otherwise: http.StatusUnauthorized},
	{name: "429", meaning: "too many requests, with Retry-After", field: func(r *rehearsal) any { return &r.status }, otherwise: http.StatusTooManyRequests},
	{name: "500", meaning: "an error inside the vendor", field: func(r *rehearsal) any { return &r.status }, otherwise: http.StatusInternalServerError},
	{name: "529", meaning: "the vendor is overloaded", field: func(r *rehearsal) any { return &r.status }, otherwise: statusOverloaded},
	{name: "html", meaning: "502 with a page of HTML", field: func(r *rehearsal) any { return &r.html }},
	{name: "empty", meaning: "200 without a body", field: func(r *rehearsal) any { return &r.empty }},
	{name: "slow", meaning: "the first byte comes late", field: func(r *rehearsal) any { return &r.slow }, pause: 3 * time.Second},
	{name: "stall", meaning: "a stream falls silent", field: func(r *rehearsal) any { return &r.stall }, pause: time.Minute},
	{name: "break", meaning: "the connection breaks off", field: func(r *rehearsal) any { return &r.breakOff }},
	{name: "error", meaning: "a stream ends with an error event", field: func(r *rehearsal) any { return &r.fail }},
	{name: "nousage", meaning: "no usage is reported", field: func(r *rehearsal) any { return &r.noUsage }},
	{name: "cached", meaning: "input counts as read from the cache", field: func(r *rehearsal) any { return &r.cached }},
	{name: "long", meaning: "an answer of N pieces", field: func(r *rehearsal) any { return &r.long }},
	{name: "gzip", meaning: "a JSON answer is compressed", field: func(r *rehearsal) any { return &r.gzip }},
}

// spoken finds words in a text. A value ends before punctuation, so that a word
// may end a sentence.
var spoken = regexp.MustCompile(`\bdemo:([a-z0-9]+)(?:=([0-9a-z.-]*[0-9a-z]))?`)

// rehearse reads the words in text. Unknown ones are left alone: they are text.
func rehearse(text string) (r rehearsal, err error) {
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

// set notes the word in r. The value is what followed "=", if anything did.
func (w *word) set(r *rehearsal, value string) (err error) {
	switch field := w.field(r).(type) {
	case *time.Duration:
		if *field = w.pause; value != "" {
			*field, err = time.ParseDuration(value)
		}
		if err != nil || *field <= 0 || *field > maxPause {
			return fmt.Errorf("%q is not a duration up to %s, such as 500ms", value, maxPause)
		}
		return nil
	case *bool:
		*field = true
	case *int:
		if *field = w.otherwise; w.otherwise == 0 {
			if *field, err = strconv.Atoi(value); err != nil || *field < 1 || *field > maxSpeech {
				return fmt.Errorf("%q is not a number of pieces from 1 to %d", value, maxSpeech)
			}
			return nil
		}
	}
	if value != "" {
		return fmt.Errorf("takes no value, not %q", value)
	}
	return nil
}
