package demo

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// simulation has the failures that a prompt requests; the zero value has none.
type simulation struct {
	status   int           // answer with this error
	html     bool          // answer with a page of HTML
	empty    bool          // answer without a body
	slow     time.Duration // wait before the first byte
	stall    time.Duration // send nothing in the middle of a stream
	breakOff bool          // close the connection in the middle
	fail     bool          // send an error event in the middle of a stream, or 529 without one
	noUsage  bool          // report no usage
	cached   bool          // count input as read from the cache
	long     int           // answer with this many pieces
	gzip     bool          // compress a JSON answer
}

// maxPause is the maximum duration of slow and stall.
const maxPause = time.Hour

// word is one row of the table of simulation words.
type word struct {
	name    string
	meaning string
	// field returns the field that the word sets: a *bool, which accepts no
	// value, a *time.Duration or an *int.
	field           func(r *simulation) any
	defaultInt      int           // value of an *int without a value
	defaultDuration time.Duration // value of a *time.Duration without a value
}

// table has every word that can follow "demo:". The documentation of Demo lists the same
// words; a test compares them.
var table = []word{
	{name: "401", meaning: "a vendor refuses the operator's key", field: func(r *simulation) any { return &r.status }, defaultInt: http.StatusUnauthorized},
	{name: "429", meaning: "too many requests, with Retry-After", field: func(r *simulation) any { return &r.status }, defaultInt: http.StatusTooManyRequests},
	{name: "500", meaning: "an internal error of the vendor", field: func(r *simulation) any { return &r.status }, defaultInt: http.StatusInternalServerError},
	{name: "529", meaning: "the vendor is overloaded", field: func(r *simulation) any { return &r.status }, defaultInt: statusOverloaded},
	{name: "html", meaning: "502 with a page of HTML", field: func(r *simulation) any { return &r.html }},
	{name: "empty", meaning: "200 without a body", field: func(r *simulation) any { return &r.empty }},
	{name: "slow", meaning: "the first byte is delayed", field: func(r *simulation) any { return &r.slow }, defaultDuration: 3 * time.Second},
	{name: "stall", meaning: "a stream pauses", field: func(r *simulation) any { return &r.stall }, defaultDuration: time.Minute},
	{name: "break", meaning: "the connection breaks", field: func(r *simulation) any { return &r.breakOff }},
	{name: "error", meaning: "an error in the middle of a stream", field: func(r *simulation) any { return &r.fail }},
	{name: "nousage", meaning: "no usage is reported", field: func(r *simulation) any { return &r.noUsage }},
	{name: "cached", meaning: "input counts as read from the cache", field: func(r *simulation) any { return &r.cached }},
	{name: "long", meaning: "an answer of N pieces", field: func(r *simulation) any { return &r.long }},
	{name: "gzip", meaning: "a JSON answer is compressed", field: func(r *simulation) any { return &r.gzip }},
}

// wordForm matches words in a text. A value ends before punctuation, so that a
// word may end a sentence.
var wordForm = regexp.MustCompile(`\bdemo:([a-z0-9]+)(?:=([0-9a-z.-]*[0-9a-z]))?`)

// simulate parses the words in text. Unknown words are ordinary text.
func simulate(text string) (r simulation, err error) {
	for _, found := range wordForm.FindAllStringSubmatch(text, -1) {
		for _, w := range table {
			if w.name != found[1] {
				continue
			}
			if err := w.set(&r, found[2]); err != nil {
				return simulation{}, invalid("", "demo:%s (%s): %v.", w.name, w.meaning, err)
			}
		}
	}
	return r, nil
}

// set sets the field of a word in r. value is the text after "=".
func (w *word) set(r *simulation, value string) (err error) {
	switch field := w.field(r).(type) {
	case *time.Duration:
		if *field = w.defaultDuration; value != "" {
			*field, err = time.ParseDuration(value)
		}
		if err != nil || *field <= 0 || *field > maxPause {
			return fmt.Errorf("%q is not a duration up to %s, such as 500ms", value, maxPause)
		}
		return nil
	case *bool:
		*field = true
	case *int:
		if *field = w.defaultInt; w.defaultInt == 0 {
			if *field, err = strconv.Atoi(value); err != nil || *field < 1 || *field > maxPieces {
				return fmt.Errorf("%q is not a number of pieces from 1 to %d", value, maxPieces)
			}
			return nil
		}
	}
	if value != "" {
		return fmt.Errorf("%q is not allowed: the word has no value", value)
	}
	return nil
}
