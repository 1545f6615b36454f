package task

import (
	"math/rand/v2"
	"time"
)

const (
	// deliveryWait is how long a submission waits for the delivery.
	deliveryWait = 10 * time.Second

	// submitTimeout is how long a backend may take to accept a job.
	submitTimeout = 30 * time.Second

	// pollTimeout is how long a backend may take to answer any other question.
	pollTimeout = 30 * time.Second

	// leaseFor is how long a claim is held. Nothing under a claim takes longer without renewing it.
	leaseFor = time.Minute

	// idle is how long a driver sleeps at most: another node may have left work.
	idle = time.Minute

	// submissionLife is how long a task lives at most (docs/reference/tasks.md#states), and jobLife
	// how long its job lives at a backend.
	submissionLife = 72 * time.Hour
	jobLife        = 24 * time.Hour

	// grace is how long a job whose delivery is unknown is searched for before its task fails. It is
	// searched for a few times, with growing pauses: at many services a search means to submit the
	// job again.
	grace        = 10 * time.Minute
	maxSearches  = 6
	firstSearch  = 2 * time.Second
	searchGrowth = 3

	// goneGrace is how long a backend may say that it does not know a job before the task fails: not
	// every machine of a service knows a new job at once.
	goneGrace = 10 * time.Minute

	// wakePause is the least time between two polls of a job.
	wakePause = time.Second

	// watchFor is how long a job is watched whose task has timed out, and watchEvery how often: if
	// it succeeds its cost is the operator's loss.
	watchFor   = 24 * time.Hour
	watchEvery = time.Hour

	// keepPatience is how long copying may fail before the task ends with the links of the backend
	// (docs/reference/tasks.md#files), and keepAgain the pause after a failure.
	keepPatience = time.Hour
	keepAgain    = 15 * time.Second

	// maxPause bounds what a backend can ask for by Retry-After.
	maxPause = 10 * time.Minute
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

// interval returns how long to wait before the next poll of a job of an age, after failing polls
// without an answer in a row.
func interval(age time.Duration, failing int) time.Duration {
	every := errorIntervals[min(failing, len(errorIntervals)-1)]
	for _, p := range pollIntervals {
		if age < p.until {
			every = max(every, p.every)
			break
		}
	}
	return jitter(every)
}

// jitter spreads events that would otherwise coincide, by a fifth.
func jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1) //nolint:gosec // it is no secret
}

// milliseconds is how the times of records are written.
func milliseconds(t time.Time) int64 { return t.UnixMilli() }
