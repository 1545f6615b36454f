package metrics

import (
	"context"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/media"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Source has the services of one open store that count by themselves.
type Source struct {
	Store     *storage.Store
	Directory *identity.Directory
	Ledger    *ledger.Ledger
	Tasks     *task.Engine
	Media     *media.Archive
	Detached  *limit.KeyedSemaphore

	// Mismatches is how many problems the last verification found.
	Mismatches int64

	// LastBackup returns when the last backup was completed, in Unix seconds; 0 if none was.
	LastBackup func(context.Context) (int64, error)

	// Tolerance returns the tolerance of the configuration in force; false if there
	// is none.
	Tolerance func() (ledger.Tolerance, bool)

	// Backlog returns a count of the unfinished tasks that is not older than a minute;
	// false if there is none.
	Backlog func() (Backlog, bool)
}

// Backlog counts the unfinished tasks, and those of them that no backend works on.
type Backlog struct {
	task.Backlog
	Abandoned map[string]int64 // tasks, by the backend that is not configured
}

// collector reads the open stores at each scrape, so that it counts nothing on the
// way of a call.
type collector struct {
	sources iter.Seq2[string, Source]
}

var (
	storeCommits  = prometheus.NewDesc("modelgate_store_commits_total", "Changes made durable.", []string{"store"}, nil)
	storeBatches  = prometheus.NewDesc("modelgate_store_batches_total", "Transactions of the engine that made them durable.", []string{"store"}, nil)
	storeQueue    = prometheus.NewDesc("modelgate_store_queue", "Changes waiting for a commit.", []string{"store"}, nil)
	storeFailed   = prometheus.NewDesc("modelgate_store_failed", "1 after a fail stop; nothing is served until a restart.", []string{"store"}, nil)
	storeLowSpace = prometheus.NewDesc("modelgate_store_low_space_total", "Changes refused because the medium is almost full.", []string{"store"}, nil)
	storeFree     = prometheus.NewDesc("modelgate_store_free_bytes", "Bytes that are free on the medium of the store.", []string{"store"}, nil)
	storeMinFree  = prometheus.NewDesc("modelgate_store_min_free_bytes", "Bytes below which changes are refused.", []string{"store"}, nil)
	lastBackup    = prometheus.NewDesc("modelgate_last_backup_timestamp_seconds", "When the last backup was completed, in Unix seconds; 0 if there was none.", []string{"store"}, nil)
	credentials   = prometheus.NewDesc("modelgate_credentials", "Credentials in force.", []string{"store"}, nil)

	detached       = prometheus.NewDesc("modelgate_detached", "Calls that run on without their callers.", []string{"store"}, nil)
	reservations   = prometheus.NewDesc("modelgate_reservations", "Reservations that have not ended.", []string{"store"}, nil)
	reserved       = prometheus.NewDesc("modelgate_reserved", "What they hold, in units of the currency.", []string{"store"}, nil)
	settlements    = prometheus.NewDesc("modelgate_settlements_queued", "Settlements of calls that are not durable yet.", []string{"store"}, nil)
	atRisk         = prometheus.NewDesc("modelgate_settlements_at_risk", "What those have charged, which a crash would forget, in units of the currency.", []string{"store"}, nil)
	restricted     = prometheus.NewDesc("modelgate_users_restricted", "Users whose calls are restricted for what earlier calls left uncollected.", []string{"store"}, nil)
	ledgerMismatch = prometheus.NewDesc("modelgate_ledger_mismatch", "Contradictions found in the ledger, while charging and by the last verify. Anything but 0 is an alarm.", []string{"store"}, nil)
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

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeCommits, storeBatches, storeQueue, storeFailed, storeLowSpace, storeFree, storeMinFree, lastBackup, credentials, detached, reservations, reserved, settlements, atRisk, restricted, ledgerMismatch} {
		ch <- d
	}
	for _, d := range taskDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for store, s := range c.sources {
		stats := s.Store.Stats()
		failed := 0.0
		if s.Store.Err() != nil {
			failed = 1
		}
		ch <- prometheus.MustNewConstMetric(storeCommits, prometheus.CounterValue, float64(stats.Committed), store)
		ch <- prometheus.MustNewConstMetric(storeBatches, prometheus.CounterValue, float64(stats.Batches), store)
		ch <- prometheus.MustNewConstMetric(storeQueue, prometheus.GaugeValue, float64(stats.Queued), store)
		ch <- prometheus.MustNewConstMetric(storeFailed, prometheus.GaugeValue, failed, store)
		ch <- prometheus.MustNewConstMetric(storeLowSpace, prometheus.CounterValue, float64(stats.LowSpace), store)
		if free, least, err := s.Store.Space(); err == nil {
			ch <- prometheus.MustNewConstMetric(storeFree, prometheus.GaugeValue, float64(free), store)
			ch <- prometheus.MustNewConstMetric(storeMinFree, prometheus.GaugeValue, float64(least), store)
		}
		ch <- prometheus.MustNewConstMetric(credentials, prometheus.GaugeValue, float64(s.Directory.Count()), store)
		ch <- prometheus.MustNewConstMetric(detached, prometheus.GaugeValue, float64(s.Detached.Held()), store)
		figures := s.Ledger.Stats()
		ch <- prometheus.MustNewConstMetric(reservations, prometheus.GaugeValue, float64(figures.Open), store)
		ch <- prometheus.MustNewConstMetric(reserved, prometheus.GaugeValue, units(figures.Reserved), store)
		ch <- prometheus.MustNewConstMetric(settlements, prometheus.GaugeValue, float64(figures.Queued), store)
		ch <- prometheus.MustNewConstMetric(atRisk, prometheus.GaugeValue, units(figures.AtRisk), store)
		s.collectStored(store, ch)
		ch <- prometheus.MustNewConstMetric(ledgerMismatch, prometheus.GaugeValue, float64(figures.Mismatches+s.Mismatches), store)
		s.collectTasks(store, ch)
	}
}

// collectStored sends the metrics that are read from the store. It omits a metric if the
// store does not answer in time.
func (s *Source) collectStored(store string, ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if at, err := s.LastBackup(ctx); err == nil {
		ch <- prometheus.MustNewConstMetric(lastBackup, prometheus.GaugeValue, float64(at), store)
	}
	tolerance, known := s.Tolerance()
	if !known {
		return
	}
	if users, err := s.Ledger.Restricted(ctx, tolerance); err == nil {
		ch <- prometheus.MustNewConstMetric(restricted, prometheus.GaugeValue, float64(len(users)), store)
	}
}

// collectTasks sends what the tasks and their files have come to.
func (s *Source) collectTasks(store string, ch chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{store}, labels...)...)
	}
	count := func(desc *prometheus.Desc, n int64, labels ...string) {
		send(desc, prometheus.CounterValue, float64(n), labels...)
	}
	f := s.Tasks.Stats()
	for _, media := range []backends.MediaType{backends.ImageFile, backends.VideoFile} {
		name := string(media)
		count(tasksSubmitted, f.Submitted[media], name)
		count(tasksEnded, f.Succeeded[media], name, string(task.Success))
		count(tasksEnded, f.Failed[media], name, string(task.Failed))
		count(tasksEnded, f.RolledBack[media], name, "refused")
	}
	count(taskPolls, f.Polls)
	count(taskPollErrors, f.PollErrors)
	count(taskStrange, f.UnknownStatuses)
	count(taskLosses, f.Losses)
	count(callbacksSent, f.Delivered, "delivered")
	count(callbacksSent, f.Undelivered, "failed")
	count(callbacksSent, f.Dead, "dead")

	copied := s.Media.Stats()
	count(mediaCopies, int64(copied.Copies))
	count(mediaBytes, int64(copied.Bytes))
	count(mediaFailures, int64(copied.Failures))
	count(mediaRemoved, int64(copied.Removed))

	backlog, known := s.Backlog()
	if !known {
		return
	}
	for group, n := range backlog.Unfinished {
		send(tasksUnfinished, prometheus.GaugeValue, float64(n), group.Backend, string(group.Type), string(group.Status))
	}
	oldest := 0.0
	if !backlog.Oldest.IsZero() {
		oldest = max(0, s.Store.Now().Sub(backlog.Oldest).Seconds())
	}
	send(tasksOldest, prometheus.GaugeValue, oldest)
	send(callbacksWait, prometheus.GaugeValue, float64(backlog.Callbacks))
	for backend, n := range backlog.Abandoned {
		send(tasksAbandoned, prometheus.GaugeValue, float64(n), backend)
	}
}
