package transition

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

const (
	// LeaseFor is the duration of a claim. Work that takes longer must renew it.
	LeaseFor = time.Minute

	// SubmissionLife is the maximum time from submission to end (docs/reference/tasks.md#states).
	SubmissionLife = 72 * time.Hour

	// Grace is how long the gateway searches for a job of unknown delivery before its task fails.
	// There are few searches, with growing pauses: at many services a search submits the job again
	// under the same token.
	Grace        = 10 * time.Minute
	MaxSearches  = 6
	firstSearch  = 2 * time.Second
	searchGrowth = 3

	// WakePause is the minimum time between two polls of a job.
	WakePause = time.Second

	// WatchEvery is the poll interval of a job whose task has timed out.
	WatchEvery = time.Hour

	// MaxPause is the maximum pause that a backend can ask for by Retry-After.
	MaxPause = 10 * time.Minute
)

// SessionWindow is how long a session id is in use: 3 days from the creation of its task, half
// open (docs/reference/tasks.md#session-ids).
const SessionWindow = 259_200 * time.Second

// pollIntervals are the poll intervals of a job by its age
// (docs/reference/tasks.md#polling-of-services).
var pollIntervals = []struct {
	until time.Duration // since the backend accepted the job
	every time.Duration
}{
	{30 * time.Second, 2 * time.Second},
	{5 * time.Minute, 5 * time.Second},
	{1<<63 - 1, 15 * time.Second},
}

// errorIntervals are the minimum pauses by the number of failed polls in a row.
var errorIntervals = []time.Duration{0, 2 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// Interval returns the pause before the next poll of a job. age is the time since its acceptance,
// failing the number of failed polls in a row.
func Interval(age time.Duration, failing int) time.Duration {
	every := errorIntervals[min(failing, len(errorIntervals)-1)]
	for _, p := range pollIntervals {
		if age < p.until {
			every = max(every, p.every)
			break
		}
	}
	return record.Jitter(every)
}
