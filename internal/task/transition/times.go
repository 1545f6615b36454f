package transition

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

const (
	// LeaseFor is how long a claim is held. Nothing under a claim takes longer without renewing it.
	LeaseFor = time.Minute

	// SubmissionLife is how long a task lives at most (docs/reference/tasks.md#states).
	SubmissionLife = 72 * time.Hour

	// Grace is how long a job whose delivery is unknown is searched for before its task fails. It is
	// searched for a few times, with growing pauses: at many services a search means to submit the
	// job again.
	Grace        = 10 * time.Minute
	MaxSearches  = 6
	firstSearch  = 2 * time.Second
	searchGrowth = 3

	// WakePause is the least time between two polls of a job.
	WakePause = time.Second

	// WatchEvery is how often a job is polled whose task has timed out.
	WatchEvery = time.Hour

	// MaxPause bounds what a backend can ask for by Retry-After.
	MaxPause = 10 * time.Minute
)

// SessionWindow is how long a session id is in use: 3 days from the acceptance of its task, half
// open (docs/reference/tasks.md#session-ids).
const SessionWindow = 259_200 * time.Second

// pollIntervals are how often a backend is asked for a job, by how long it has had it
// (docs/reference/tasks.md#polling-of-services).
var pollIntervals = []struct {
	until time.Duration // since the backend accepted the job
	every time.Duration
}{
	{30 * time.Second, 2 * time.Second},
	{5 * time.Minute, 5 * time.Second},
	{1<<63 - 1, 15 * time.Second},
}

// errorIntervals are the least pauses after polls without an answer, in a row.
var errorIntervals = []time.Duration{0, 2 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// Interval returns how long to wait before the next poll of a job of an age, after failing polls
// without an answer in a row.
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
