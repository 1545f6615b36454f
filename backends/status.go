package backends

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// State is the state of a job.
type State string

// The states.
const (
	Queued    State = "queued"    // waiting at the service
	Running   State = "running"   // in progress
	Succeeded State = "succeeded" // has results
	Failed    State = "failed"    // ended without a result; Failure says why

	// Unknown: the adapter does not know the status word, or there is none. The
	// job keeps its previous state.
	Unknown State = "unknown"
)

// Words maps a service's status words, in lower case, to states.
type Words map[string]State

// State returns the state of a word, in any case.
func (words Words) State(word string) State {
	if state, known := words[strings.ToLower(strings.TrimSpace(word))]; known {
		return state
	}
	return Unknown
}

// Status is a service's report about a job.
type Status struct {
	State State

	// Word is the service's status word, as [Text] returns it.
	Word string

	// Progress is a percentage, 0 to 100; 0 if the service does not report it.
	Progress int

	// Results is not empty if and only if the job succeeded.
	Results []Result

	// Failure is set if and only if the job failed.
	Failure *Failure

	// RetryAfter is the wait that the service requires before the next poll;
	// zero if unknown.
	RetryAfter time.Duration

	// Cost is what the job cost the operator, according to the service. It is
	// recorded and never charged.
	Cost Cost
}

// MediaType is the type of a file.
type MediaType string

// The types of file.
const (
	ImageFile MediaType = "image"
	VideoFile MediaType = "video"
)

// Result is one generated file. Fields that the service does not report are zero.
type Result struct {
	// URL is an absolute http or https URL that needs no credential and is
	// valid for as long as the service keeps the file. If it is empty,
	// [Fetcher.Fetch] returns the bytes.
	URL string

	Type     MediaType
	Duration float64 // seconds
	Width    int     // pixels
	Height   int     // pixels
	Format   string  // such as "mp4" or "png"
}

// Cost is an amount in the service's own unit, such as "12.5" "credits".
type Cost struct {
	Amount string // a decimal number as the service wrote it; empty if it reported none
	Unit   string
}

// Reason is why a job failed, reduced to the causes that a caller can act on.
type Reason string

// The reasons. UpstreamError covers everything that concerns the gateway and its
// operator.
const (
	ContentRejected Reason = "CONTENT_REJECTED" // a safety check refused the input or the result
	InvalidInput    Reason = "INVALID_INPUT"    // the model cannot use the input
	UpstreamBusy    Reason = "UPSTREAM_BUSY"    // the service had no capacity; the same job may succeed later
	ModelFailed     Reason = "MODEL_FAILED"     // the model ended without a result
	TaskTimeout     Reason = "TASK_TIMEOUT"     // the service ended the job because it took too long
	TaskCancelled   Reason = "TASK_CANCELLED"   // the job was cancelled
	UpstreamError   Reason = "UPSTREAM_ERROR"   // an error at the service, or with the operator's account there
)

// Failure is why a job failed.
type Failure struct {
	Reason  Reason
	Message string // for the caller: at most 1 KiB, on one line, without secrets
	Detail  string // for the operator's log, in the same form
}

// reasons maps each reason to the default message for the caller, and to
// whether the caller also sees the service's own text. Texts about the
// operator's account are not shown to callers.
var reasons = map[Reason]struct {
	message string
	shown   bool
}{
	ContentRejected: {"the generation service refused the content", true},
	InvalidInput:    {"the generation service cannot use this input", true},
	UpstreamBusy:    {"the generation service is busy; try again later", false},
	ModelFailed:     {"the model failed to generate a result", true},
	TaskTimeout:     {"the generation took too long", false},
	TaskCancelled:   {"the task was cancelled", false},
	UpstreamError:   {"the generation service failed", false},
}

// Fail returns the failure for a reason with the service's own code and text.
// An unknown reason becomes UpstreamError. The message contains no internal
// addresses.
func Fail(reason Reason, code, text string) *Failure {
	row, known := reasons[reason]
	if !known {
		reason, row = UpstreamError, reasons[UpstreamError]
	}
	f := &Failure{Reason: reason, Message: row.message, Detail: Text(strings.TrimSpace(code + " " + text))}
	if shown := RedactAddresses(Text(text)); row.shown && shown != "" {
		f.Message = shown
	}
	return f
}

// MaxText is the maximum length in bytes of a service's text that is kept.
const MaxText = 1 << 10

// Text returns a service's text as valid UTF-8 on one line, without control
// characters, at most [MaxText] bytes long.
func Text(s string) string {
	// Long texts are cut first, to limit the work of the next steps.
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
