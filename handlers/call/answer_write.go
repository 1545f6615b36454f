package call

import (
	"io"
	"net/http"
	"time"
)

// This file passes the body of an answer to the caller.

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.head {
		a.writeHeader(http.StatusOK)
	}
	if !a.passed || a.closed {
		if a.dropped += len(p); a.dropped > maxDropped {
			return 0, errDropped
		}
		return len(p), nil
	}
	return a.pass(p)
}

// pass forwards a part of the body to the caller and reads usage from it.
func (a *answer) pass(p []byte) (n int, err error) {
	now := time.Now()
	if a.firstByte.IsZero() && len(p) > 0 {
		a.firstByte = now
	}
	a.received = a.received || len(p) > 0
	if a.callerGone {
		err = a.readDetached(p)
		a.lastByte = time.Now()
	} else {
		a.bytes += int64(len(p))
		if now.Sub(a.lastByte) >= awaited {
			a.blocked = 0
		}
		began := now
		switch {
		case a.trim != nil:
			_, err = a.trim.Write(p) // also writes to the meter
		case a.meter != nil:
			a.meter.Write(p)
			if err = a.recordIDs(); err != nil {
				return 0, err
			}
			if a.call.owns() {
				began = time.Now() // to record ids takes a commit
			}
			fallthrough
		default:
			_, err = a.ResponseWriter.Write(p)
		}
		a.recordWrite(began)
		if err != nil {
			a.detachOrCancel() // the meter has read all of p
			if a.call.detached() {
				err = nil
			}
		}
	}
	if err != nil {
		return 0, err
	}
	if a.meter != nil {
		a.stream = a.meter.Stream()
		if !a.callerGone {
			a.countDelivered()
		}
	}
	if a.meter != nil && (a.stream || a.call.request.Stream) {
		if out := a.call.settleRunning(now); out != nil {
			a.call.cancel(out)
			return len(p), out
		}
		if a.meter.TooLong() {
			return 0, errTooLong
		}
	}
	return len(p), nil
}

// recordWrite records a write to the caller that has ended. It updates the times of the last byte, because the
// backend is not silent while a write blocks. Writes below 1 ms did not block.
func (a *answer) recordWrite(began time.Time) {
	a.lastByte = time.Now()
	a.lastSent = a.lastByte
	a.noteBlocked(a.lastByte.Sub(began))
}

// noteBlocked adds the time of a write to the caller to that for which the backend was not read.
func (a *answer) noteBlocked(took time.Duration) {
	if took >= time.Millisecond {
		a.blocked += took
	}
}

// awaited is how long the gateway waits for a part of an answer until it is sure that it has read all that
// the backend has sent before.
const awaited = 20 * time.Millisecond

func (a *answer) emit(p []byte) error {
	_, err := a.ResponseWriter.Write(p)
	return err
}

// ReadFrom implements io.ReaderFrom. The method of the wrapper would bypass the
// meter.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{a}, r)
}

// FlushError implements flushing for http.ResponseController.
func (a *answer) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || !a.head || a.withheld || a.callerGone {
		return nil // a flush before the header would send an empty 200
	}
	defer a.recordWrite(time.Now())
	return a.control.Flush()
}
