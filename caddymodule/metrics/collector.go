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
	"github.com/caddy-modelgate/modelgate/internal/mail"
	"github.com/caddy-modelgate/modelgate/internal/media"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Source has the services of one open store that have their own counters.
type Source struct {
	Store     *storage.Store
	Directory *identity.Directory
	Ledger    *ledger.Ledger
	Tasks     *task.Engine
	Media     *media.Archive
	Mail      *mail.Queue
	Detached  *limit.KeyedSemaphore

	// Mismatches is how many problems the last verification found.
	Mismatches int64

	// LastBackup returns when the last backup was completed, in Unix seconds; 0 if none was.
	LastBackup func(context.Context) (int64, error)

	// Tolerance returns the tolerance of the active configuration; false if there is none.
	Tolerance func() (ledger.Tolerance, bool)

	// Backlog returns a count of the unfinished tasks that is at most a minute old;
	// false if the count failed.
	Backlog func() (Backlog, bool)
}

// Backlog counts the unfinished tasks, and those whose backend is not configured.
type Backlog struct {
	task.Backlog
	Abandoned map[string]int64 // number of tasks by backend that is not configured
}

// collector reads the open stores at each scrape, so it adds no work to calls.
type collector struct {
	sources iter.Seq2[string, Source]
}

var (
	storeCommits  = prometheus.NewDesc("modelgate_store_commits_total", "Durable changes.", []string{"store"}, nil)
	storeBatches  = prometheus.NewDesc("modelgate_store_batches_total", "Transactions of the engine for these changes.", []string{"store"}, nil)
	storeQueue    = prometheus.NewDesc("modelgate_store_queue", "Changes waiting for a commit.", []string{"store"}, nil)
	storeNodes    = prometheus.NewDesc("modelgate_store_nodes", "Gateways that have the store open.", []string{"store"}, nil)
	storeReady    = prometheus.NewDesc("modelgate_store_ready", "1 if this gateway can take calls; 0 if its store has failed or cannot be reached.", []string{"store"}, nil)
	storeFailed   = prometheus.NewDesc("modelgate_store_failed", "1 after the store has failed; the gateway serves nothing until a restart.", []string{"store"}, nil)
	storeLowSpace = prometheus.NewDesc("modelgate_store_low_space_total", "Changes refused because the medium is almost full.", []string{"store"}, nil)
	storeFree     = prometheus.NewDesc("modelgate_store_free_bytes", "Free bytes on the medium of the store.", []string{"store"}, nil)
	storeMinFree  = prometheus.NewDesc("modelgate_store_min_free_bytes", "Free bytes below which changes are refused.", []string{"store"}, nil)
	lastBackup    = prometheus.NewDesc("modelgate_last_backup_timestamp_seconds", "Time of the last completed backup in Unix seconds; 0 if there was none.", []string{"store"}, nil)
	mails         = prometheus.NewDesc("modelgate_mails_total", "Attempts to send mails: sent; retried; failed and dropped, not retried.", []string{"store", "outcome"}, nil)
	credentials   = prometheus.NewDesc("modelgate_credentials", "Credentials in force.", []string{"store"}, nil)

	detached       = prometheus.NewDesc("modelgate_detached", "Detached calls, whose callers have disconnected.", []string{"store"}, nil)
	reservations   = prometheus.NewDesc("modelgate_reservations", "Open reservations.", []string{"store"}, nil)
	reserved       = prometheus.NewDesc("modelgate_reserved", "Reserved amount of open reservations, in units of the currency.", []string{"store"}, nil)
	settlements    = prometheus.NewDesc("modelgate_settlements_queued", "Settlements of calls that are not durable yet.", []string{"store"}, nil)
	atRisk         = prometheus.NewDesc("modelgate_settlements_at_risk", "Charges of settlements that are not durable yet, which a crash would lose, in units of the currency.", []string{"store"}, nil)
	restricted     = prometheus.NewDesc("modelgate_users_restricted", "Users whose calls are restricted because of uncollected costs.", []string{"store"}, nil)
	ledgerMismatch = prometheus.NewDesc("modelgate_ledger_mismatch", "Mismatches in the ledger that charges and the last verification found. Alert if it is not 0.", []string{"store"}, nil)
)

// taskDesc describes a metric of tasks; each has the store as its first label.
func taskDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("modelgate_"+name, help, append([]string{"store"}, labels...), nil)
}

var (
	tasksSubmitted  = taskDesc("tasks_submitted_total", "Created generation tasks, by type.", "type")
	tasksEnded      = taskDesc("tasks_ended_total", "Ended generation tasks, by type and status; refused: the service refused the submission.", "type", "status")
	tasksUnfinished = taskDesc("tasks_unfinished", "Unfinished generation tasks, counted at most once a minute.", "backend", "type", "status")
	tasksOldest     = taskDesc("tasks_oldest_seconds", "Age of the oldest unfinished generation task; 0 if there is none.")
	tasksAbandoned  = taskDesc("tasks_abandoned", "Unfinished generation tasks of backends that are no longer configured. Alert if it is not 0.", "backend")
	taskPolls       = taskDesc("task_polls_total", "Polls of tasks at backends.")
	taskPollErrors  = taskDesc("task_poll_errors_total", "Polls without an answer.")
	unknownStatuses = taskDesc("task_strange_words_total", "Polls that returned a status which the adapter does not know.")
	taskLosses      = taskDesc("task_losses_total", "Generated jobs that no user was charged for: the operator's loss.")
	callbacksSent   = taskDesc("callbacks_total", "Attempts at callbacks: delivered; failed, to be retried; dead, not retried.", "outcome")
	callbacksWait   = taskDesc("callbacks_waiting", "Callbacks that are not delivered yet, counted at most once a minute.")
	mediaCopies     = taskDesc("media_copies_total", "Copied files.")
	mediaBytes      = taskDesc("media_bytes_total", "Bytes of copied files.")
	mediaFailures   = taskDesc("media_failures_total", "Failed attempts to copy a file; they are retried.")
	mediaRemoved    = taskDesc("media_removed_total", "Removed files.")
)

var taskDescs = []*prometheus.Desc{
	tasksSubmitted, tasksEnded, tasksUnfinished, tasksOldest, tasksAbandoned, taskPolls, taskPollErrors, unknownStatuses, taskLosses,
	callbacksSent, callbacksWait, mediaCopies, mediaBytes, mediaFailures, mediaRemoved,
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeCommits, storeBatches, storeQueue, storeNodes, storeReady, storeFailed, storeLowSpace, storeFree, storeMinFree, lastBackup, credentials, mails, detached, reservations, reserved, settlements, atRisk, restricted, ledgerMismatch} {
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
		ready := 0.0
		if s.Store.Ready() == nil {
			ready = 1
		}
		ch <- prometheus.MustNewConstMetric(storeNodes, prometheus.GaugeValue, float64(s.Store.LiveNodes()), store)
		ch <- prometheus.MustNewConstMetric(storeReady, prometheus.GaugeValue, ready, store)
		ch <- prometheus.MustNewConstMetric(storeFailed, prometheus.GaugeValue, failed, store)
		ch <- prometheus.MustNewConstMetric(storeLowSpace, prometheus.CounterValue, float64(stats.LowSpace), store)
		if free, minFree, err := s.Store.Space(); err == nil {
			ch <- prometheus.MustNewConstMetric(storeFree, prometheus.GaugeValue, float64(free), store)
			ch <- prometheus.MustNewConstMetric(storeMinFree, prometheus.GaugeValue, float64(minFree), store)
		}
		ch <- prometheus.MustNewConstMetric(credentials, prometheus.GaugeValue, float64(s.Directory.Count()), store)
		ch <- prometheus.MustNewConstMetric(detached, prometheus.GaugeValue, float64(s.Detached.Held()), store)
		mailed := s.Mail.Stats()
		for outcome, n := range map[string]int64{"sent": mailed.Sent, "retried": mailed.Retried, "failed": mailed.Failed, "dropped": mailed.Dropped} {
			ch <- prometheus.MustNewConstMetric(mails, prometheus.CounterValue, float64(n), store, outcome)
		}
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

// collectStored sends the metrics that it reads from the store. It omits a metric if the
// store does not answer within a second.
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

// collectTasks sends the metrics of tasks and their files.
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
	count(unknownStatuses, f.UnknownStatuses)
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
