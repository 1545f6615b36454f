package caddymodule

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// taskDesc describes a metric of tasks; each has the store as its first label.
func taskDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("modelgate_"+name, help, append([]string{"store"}, labels...), nil)
}

var (
	tasksSubmitted  = taskDesc("tasks_submitted_total", "Generation tasks that were made, by type.", "type")
	tasksEnded      = taskDesc("tasks_ended_total", "Generation tasks that ended, by type and status; refused are those whose submission was answered by the refusal of the service.", "type", "status")
	tasksUnfinished = taskDesc("tasks_unfinished", "Generation tasks that are not over, counted once a minute at most.", "backend", "type", "status")
	tasksOldest     = taskDesc("tasks_oldest_seconds", "Age of the oldest of these; 0 when there is none.")
	tasksAbandoned  = taskDesc("tasks_abandoned", "Those of them that wait for a backend which is not configured any more. Anything but 0 is an alarm.", "backend")
	taskPolls       = taskDesc("task_polls_total", "Questions to backends what has become of a task.")
	taskPollErrors  = taskDesc("task_poll_errors_total", "Of these, those without an answer.")
	taskStrange     = taskDesc("task_strange_words_total", "Of these, those that were answered by a word for the state that no adapter knows.")
	taskLosses      = taskDesc("task_losses_total", "Jobs that were made and nobody was charged for: the operator's loss.")
	callbacksSent   = taskDesc("callbacks_total", "Attempts at callbacks: delivered, failed and to be tried again, or dead.", "outcome")
	callbacksWait   = taskDesc("callbacks_waiting", "Callbacks that are not delivered yet, counted once a minute at most.")
	mediaCopies     = taskDesc("media_copies_total", "Files that were copied.")
	mediaBytes      = taskDesc("media_bytes_total", "Bytes of these.")
	mediaFailures   = taskDesc("media_failures_total", "Attempts at copies that failed; they are tried again.")
	mediaRemoved    = taskDesc("media_removed_total", "Files that were removed.")
)

var taskDescs = []*prometheus.Desc{
	tasksSubmitted, tasksEnded, tasksUnfinished, tasksOldest, tasksAbandoned, taskPolls, taskPollErrors, taskStrange, taskLosses,
	callbacksSent, callbacksWait, mediaCopies, mediaBytes, mediaFailures, mediaRemoved,
}

// collectTasks tells of the tasks of a runtime.
func collectTasks(runtime *Runtime, store string, ch chan<- prometheus.Metric) {
	tell := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{store}, labels...)...)
	}
	count := func(desc *prometheus.Desc, n int64, labels ...string) {
		tell(desc, prometheus.CounterValue, float64(n), labels...)
	}
	f := runtime.Tasks.Figures()
	for _, media := range []backends.MediaType{backends.ImageFile, backends.VideoFile} {
		name := string(media)
		count(tasksSubmitted, f.Submitted[media], name)
		count(tasksEnded, f.Succeeded[media], name, string(task.Success))
		count(tasksEnded, f.Failed[media], name, string(task.Failed))
		count(tasksEnded, f.TakenBack[media], name, "refused")
	}
	count(taskPolls, f.Polls)
	count(taskPollErrors, f.PollErrors)
	count(taskStrange, f.Strange)
	count(taskLosses, f.Losses)
	count(callbacksSent, f.Delivered, "delivered")
	count(callbacksSent, f.Undelivered, "failed")
	count(callbacksSent, f.Dead, "dead")

	copied := runtime.Media.Stats()
	count(mediaCopies, int64(copied.Copies))
	count(mediaBytes, int64(copied.Bytes))
	count(mediaFailures, int64(copied.Failures))
	count(mediaRemoved, int64(copied.Removed))

	census, known := runtime.counted()
	if !known {
		return
	}
	for group, n := range census.Unfinished {
		tell(tasksUnfinished, prometheus.GaugeValue, float64(n), group.Backend, string(group.Type), string(group.Status))
	}
	oldest := 0.0
	if !census.Oldest.IsZero() {
		oldest = max(0, runtime.Store.Now().Sub(census.Oldest).Seconds())
	}
	tell(tasksOldest, prometheus.GaugeValue, oldest)
	tell(callbacksWait, prometheus.GaugeValue, float64(census.Callbacks))
	for backend, n := range census.abandoned {
		tell(tasksAbandoned, prometheus.GaugeValue, float64(n), backend)
	}
}

// counting is the last count of what is not over: it reads every such task, and
// scrapes may come more often than is good for that.
type counting struct {
	sync.Mutex
	at   time.Time // of the store
	last census
}

// census is what is not over, and what of that nobody works on.
type census struct {
	task.Census
	abandoned map[string]int64 // tasks, by the backend that is not configured
}

const (
	countEvery    = time.Minute
	countPatience = 5 * time.Second
)

// counted returns a count that is not older than a minute; false when there is
// none.
func (rt *Runtime) counted() (census, bool) {
	rt.counting.Lock()
	defer rt.counting.Unlock()
	if !rt.counting.at.IsZero() && rt.Store.Now().Sub(rt.counting.at) < countEvery {
		return rt.counting.last, true
	}
	ctx, cancel := context.WithTimeout(rt.life, countPatience)
	defer cancel()
	var c census
	var err error
	if c.Census, err = rt.Tasks.Census(ctx); err == nil {
		c.abandoned, err = rt.abandoned(ctx)
	}
	if err != nil {
		rt.logger.Warn("the tasks are not counted", zap.Error(err))
		return census{}, false
	}
	rt.counting.at, rt.counting.last = rt.Store.Now(), c
	return c, true
}

// abandoned returns how many tasks wait for backends that are not configured any
// more, by backend.
func (rt *Runtime) abandoned(ctx context.Context) (map[string]int64, error) {
	all, err := rt.Tasks.Backends(ctx)
	if err != nil {
		return nil, err
	}
	waiting := make(map[string]int64)
	for _, status := range all {
		if status.Abandoned() {
			waiting[status.Name] = status.Running + status.Waiting
		}
	}
	return waiting, nil
}
