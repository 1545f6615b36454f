package backends

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// State is where a job is.
type State string

// The states.
const (
	Queued    State = "queued"    // waits at the service
	Running   State = "running"   // is worked on
	Succeeded State = "succeeded" // has results
	Failed    State = "failed"    // ended without; Failure says why

	// Unknown is a word of the service that the adapter has never heard: new, or
	// none at all. It tells nothing: the job keeps the state it had.
	Unknown State = "unknown"
)

// Words are a service's words for states, in lower case.
type Words map[string]State

// State returns what a word means, in whatever case it is written.
func (words Words) State(word string) State {
	if state, known := words[strings.ToLower(strings.TrimSpace(word))]; known {
		return state
	}
	return Unknown
}

// Status is what a service tells about a job.
type Status struct {
	State State

	// Word is the service's own word for the state, as [Text] leaves it.
	Word string

	// Progress is a percentage, 0 to 100. A service that tells none has 0.
	Progress int

	// Results is not empty exactly if the job succeeded.
	Results []Result

	// Failure is set exactly if the job failed.
	Failure *Failure

	// RetryAfter is how long the service asks to wait before the next poll.
	// Zero: it does not say.
	RetryAfter time.Duration

	// Cost is what the service says the job cost the operator. It is recorded
	// and never charged.
	Cost Cost
}

// MediaType is what a file is.
type MediaType string

// The types of file.
const (
	ImageFile MediaType = "image"
	VideoFile MediaType = "video"
)

// Result is one generated file. What the service does not tell is zero.
type Result struct {
	// URL is an absolute http or https address which anyone can follow, for as
	// long as the service keeps it. Empty: the bytes come by [Fetcher.Fetch] with
	// the result's index.
	URL string

	Type     MediaType
	Duration float64 // seconds
	Width    int     // pixels
	Height   int     // pixels
	Format   string  // as "mp4" or "png"
}

// Cost is a figure in a unit of the service's own, as "12.5" "credits".
type Cost struct {
	Amount string // a decimal number as the service wrote it; empty if it told none
	Unit   string
}

// Reason is why a job failed, among the few causes that a caller can act on.
type Reason string

// The reasons. The first three are those of the caller's words, of the moment
// and of the model; the last is anything that concerns the gateway and its
// operator.
const (
	ContentRejected Reason = "CONTENT_REJECTED" // a safety check refused the input or the result
	InvalidInput    Reason = "INVALID_INPUT"    // the model cannot use what it was given
	UpstreamBusy    Reason = "UPSTREAM_BUSY"    // the service had no room; the same job may do later
	ModelFailed     Reason = "MODEL_FAILED"     // the model ended without a result
	TaskTimeout     Reason = "TASK_TIMEOUT"     // the service gave the job up as too slow
	TaskCancelled   Reason = "TASK_CANCELLED"   // it was cancelled
	UpstreamError   Reason = "UPSTREAM_ERROR"   // an error at the service, or with the operator's account there
)

// Failure is why a job failed.
type Failure struct {
	Reason  Reason
	Message string // for the caller: at most 1 KiB, on one line, without secrets
	Detail  string // for the operator's log, of the same form
}

// reasons are all reasons, with what is said to a caller where the service says
// nothing, and whether the service's own words reach the caller: those about
// the operator's account do not concern him.
var reasons = map[Reason]struct {
	message string
	told    bool
}{
	ContentRejected: {"the generation service refused the content", true},
	InvalidInput:    {"the generation service cannot use this input", true},
	UpstreamBusy:    {"the generation service is busy; try again later", false},
	ModelFailed:     {"the model failed to generate a result", true},
	TaskTimeout:     {"the generation took too long", false},
	TaskCancelled:   {"the task was cancelled", false},
	UpstreamError:   {"the generation service failed", false},
}

// Fail returns the failure for a reason and the service's own words for it. A
// reason that is none of ours is UpstreamError. The message has no internal addresses.
func Fail(reason Reason, code, words string) *Failure {
	row, known := reasons[reason]
	if !known {
		reason, row = UpstreamError, reasons[UpstreamError]
	}
	f := &Failure{Reason: reason, Message: row.message, Detail: Text(strings.TrimSpace(code + " " + words))}
	if told := RedactAddresses(Text(words)); row.told && told != "" {
		f.Message = told
	}
	return f
}

// MaxText is the greatest length of a text of a service that is kept, in bytes.
const MaxText = 1 << 10

// Text returns what a service wrote as valid UTF-8 on one line, without
// control characters, at most [MaxText] bytes long.
func Text(s string) string {
	// What is far too long is cut before it is looked at.
	if len(s) > 4*MaxText {
		s = s[:4*MaxText]
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError, !unicode.IsGraphic(r):
			return -1
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= MaxText {
		return s
	}
	end := MaxText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimSpace(s[:end])
}
