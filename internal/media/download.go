package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

const (
	// draftStep is the number of bytes after which a draft is made durable.
	// silenceLimit is the maximum time without data from a source.
	draftStep    = 32 << 20
	silenceLimit = time.Minute

	// minRate is the minimum average rate of a source in bytes per second. A
	// slower source would occupy a slot that other copies need.
	minRate      = 16 << 10
	rateInterval = time.Minute

	// maxAttempts is how many times one Keep continues an interrupted copy.
	maxAttempts = 16

	// cleanupTime limits the work after a copy is abandoned.
	cleanupTime = 10 * time.Second

	chunk = 128 << 10
)

// download copies one result into the draft of its file.
type download struct {
	archive *Archive
	config  *config
	record  *record
	source  source

	draft     Draft
	written   int64 // bytes in the draft
	saved     int64 // written at the last save
	validator string
	total     int64
	head      []byte // the first bytes, until the kind is known
	kind      kind   // zero: not known yet
	restarted bool

	// Progress of the source since the last rate check, over all attempts.
	waited   time.Duration // time spent waiting for data
	received int64         // bytes
}

// Reasons why there is no usable result.
var (
	errBroken  = errors.New("the transfer of the result was interrupted")
	errSilent  = fmt.Errorf("%w: no data for too long", errBroken)
	errSlow    = fmt.Errorf("the result arrives at less than %d KiB per second", minRate>>10)
	errEmpty   = errors.New("the result is empty")
	errTooLong = errors.New("the result is longer than its Content-Length")
)

// tooLargeError is the error of a result beyond the size limit.
type tooLargeError struct{ bound int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the result is larger than %d bytes (media.max_file)", e.bound)
}

// run copies the result and commits the draft.
func (d *download) run(ctx context.Context) error {
	if bound := d.config.MaxFile; d.record.Draft.Refused == bound {
		return &tooLargeError{bound}
	}
	if err := d.resume(ctx); err != nil {
		return err
	}
	for try := 1; ; try++ {
		before := d.written
		err := d.attempt(ctx)
		if err == nil {
			err = d.draft.Commit()
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || try == maxAttempts || !d.retryNow(err, before) {
			d.giveUp(ctx, err)
			return err
		}
	}
}

// resume opens the draft of an earlier Keep, if it can be continued.
func (d *download) resume(ctx context.Context) error {
	p := d.record.Draft
	fileKind, known := kindOf(p.Type)
	if p.Durable == 0 || p.Validator == "" || !known || p.Source != d.source.id() {
		return nil
	}
	draft, err := d.config.Place.Draft(ctx, d.record.Name, p.Durable)
	if errors.Is(err, errNoDraft) {
		return nil
	}
	if err != nil {
		return err
	}
	d.draft, d.written, d.saved = draft, p.Durable, p.Durable
	d.validator, d.total, d.kind = p.Validator, p.Total, fileKind
	return nil
}

// retryNow reports whether a failed copy is retried at once. It is if it made progress that
// can be continued, or, only once, if the result has changed.
func (d *download) retryNow(err error, before int64) bool {
	if errors.Is(err, errChanged) && !d.restarted {
		d.restarted = true
		d.validator = ""
		return true
	}
	return errors.Is(err, errBroken) && d.validator != "" && d.written > before
}

// attempt reads the result to its end, once.
func (d *download) attempt(ctx context.Context) error {
	if d.written > 0 && d.written == d.total {
		return nil // the process ended between the last byte and the commit
	}
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	alarm := time.AfterFunc(d.archive.silenceLimit, func() { stop(errSilent) })
	defer alarm.Stop()

	from := d.written
	if d.validator == "" {
		from = 0
	}
	s, err := d.source.open(reading, from, d.validator)
	if err != nil {
		return causeOf(reading, err)
	}
	defer s.body.Close()
	if err := d.begin(ctx, s); err != nil {
		return err
	}
	buffer := make([]byte, chunk)
	for {
		alarm.Reset(d.archive.silenceLimit)
		started := time.Now()
		n, err := s.body.Read(buffer)
		alarm.Stop()
		slow := d.slow(n, time.Since(started))
		if n > 0 {
			if err := d.receive(ctx, buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return d.end(ctx)
		case err != nil:
			if slow {
				return errSlow
			}
			return causeOf(reading, fmt.Errorf("%w: %w", errBroken, sanitize(err)))
		case slow:
			return errSlow
		}
	}
}

// slow adds to the progress and reports, at the end of each interval, whether
// the rate was below minRate.
func (d *download) slow(n int, after time.Duration) bool {
	d.waited += after
	d.received += int64(n)
	if d.waited < d.archive.rateInterval {
		return false
	}
	minimum := minRate * d.waited.Seconds()
	received := float64(d.received)
	d.waited, d.received = 0, 0
	return received < minimum
}

// causeOf returns the cause of the context's end, or err if the context has not ended.
func causeOf(reading context.Context, err error) error {
	if cause := context.Cause(reading); errors.Is(cause, errSilent) {
		return errSilent
	}
	return err
}

// begin uses an opened result, and begins a new draft if the existing one
// cannot be continued.
func (d *download) begin(ctx context.Context, s *stream) error {
	if s.total > d.config.MaxFile {
		return &tooLargeError{d.config.MaxFile}
	}
	if s.from > 0 && d.total > 0 && s.total > 0 && s.total != d.total {
		return errChanged
	}
	if err := d.config.Place.CheckSpace(max(0, s.total-s.from)); err != nil {
		return err
	}
	d.validator = s.validator
	if s.from == 0 || s.total >= 0 {
		d.total = s.total
	}
	if d.draft != nil && s.from == d.written {
		return nil
	}
	if d.close(); !d.record.fresh {
		// A draft that an earlier process did not record would stay as long as
		// the file.
		if err := d.config.Place.Remove(ctx, d.record.Name); err != nil {
			return err
		}
	}
	draft, err := d.config.Place.Draft(ctx, d.record.Name, 0)
	if err != nil {
		return err
	}
	d.record.fresh = false
	d.draft, d.written, d.saved, d.head, d.kind = draft, 0, 0, nil, kind{}
	return nil
}

// receive adds bytes to the draft once their kind is known.
func (d *download) receive(ctx context.Context, p []byte) error {
	received := d.written + int64(len(d.head)+len(p))
	if received > d.config.MaxFile {
		return &tooLargeError{d.config.MaxFile}
	}
	if d.total >= 0 && received > d.total {
		return errTooLong
	}
	if d.kind == (kind{}) {
		d.head = append(d.head, p...)
		if len(d.head) < sniffBytes {
			return nil
		}
		return d.detectKind(ctx)
	}
	return d.write(ctx, p)
}

// detectKind determines the kind of the file by its first bytes and writes them.
func (d *download) detectKind(ctx context.Context) (err error) {
	if d.kind, err = sniff(d.head); err != nil {
		return err
	}
	head := d.head
	d.head = nil
	return d.write(ctx, head)
}

func (d *download) write(ctx context.Context, p []byte) error {
	n, err := d.draft.Write(p)
	d.written += int64(n)
	if err != nil || d.validator == "" || d.written-d.saved < d.archive.draftStep {
		return err
	}
	return d.save(ctx)
}

// end checks a result that was read to its end.
func (d *download) end(ctx context.Context) error {
	received := d.written + int64(len(d.head))
	switch {
	case received == 0:
		return errEmpty
	case d.total >= 0 && received < d.total:
		return fmt.Errorf("%w: %d of %d bytes arrived", errBroken, received, d.total)
	case d.kind == kind{}:
		return d.detectKind(ctx)
	}
	return nil
}

// save makes the draft durable and records its length.
func (d *download) save(ctx context.Context) error {
	durable, err := d.draft.Sync()
	if err != nil {
		return err
	}
	d.saved = d.written
	if durable == 0 {
		return nil
	}
	return d.recordProgress(ctx, progress{
		Durable: durable, Source: d.source.id(), Validator: d.validator, Total: d.total, Type: d.kind.media,
	})
}

// recordProgress stores the progress of the copy in the record.
func (d *download) recordProgress(ctx context.Context, p progress) error {
	if p == d.record.Draft {
		return nil
	}
	var noted *record
	err := d.archive.update(ctx, func(t storage.Txn) (err error) {
		noted, err = files.Change(t, table.Key{d.record.Name}, func(r *record) bool {
			r.Draft = p
			return !r.kept()
		})
		return err
	})
	switch {
	case err != nil:
		return err
	case noted == nil:
		return errors.New("the record of the file was removed during the copy")
	}
	d.record = noted
	return nil
}

// giveUp keeps a draft that can be continued, and removes any other one.
func (d *download) giveUp(ctx context.Context, failure error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime) // ctx may have ended
	defer cancel()
	large, tooLarge := errors.AsType[*tooLargeError](failure)
	switch {
	case d.draft == nil && !tooLarge: // there is no draft
	case d.draft != nil && d.validator != "" && d.kind != (kind{}) && !discards(failure):
		d.logCleanup(d.save(ctx))
	default:
		d.close()
		d.logCleanup(d.config.Place.Remove(ctx, d.record.Name))
		p := progress{}
		if tooLarge {
			p.Refused = large.bound
		}
		d.logCleanup(d.recordProgress(ctx, p))
	}
}

// discards reports whether a failure makes the copied bytes useless.
func discards(failure error) bool {
	if _, ok := errors.AsType[*tooLargeError](failure); ok {
		return true
	}
	return slices.ContainsFunc([]error{errKind, errEmpty, errTooLong, errChanged, errNoSpace}, func(e error) bool { return errors.Is(failure, e) })
}

func (d *download) logCleanup(err error) {
	if err != nil {
		d.archive.log.Warn("the draft of a failed copy could not be removed or recorded", zap.String("task_id", d.record.Task), zap.Error(err))
	}
}

// close closes the draft and keeps it.
func (d *download) close() {
	if d.draft != nil {
		d.logCleanup(d.draft.Close())
		d.draft = nil
	}
}
