package adminapi

import (
	"context"
	"fmt"
	"runtime"
	"time"

	ledgerverify "github.com/caddy-modelgate/modelgate/internal/ledger/verify"

	billingverify "github.com/caddy-modelgate/modelgate/internal/billing/verify"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/media"
	"github.com/caddy-modelgate/modelgate/internal/ownership"
	taskverify "github.com/caddy-modelgate/modelgate/internal/task/verify"
	"github.com/caddy-modelgate/modelgate/storage"
)

// verifyStore checks the open store, keeps the result, and sets the metric of mismatches.
func verifyStore(c *call) (any, error) {
	if c.actor != Operator { // verification reads the whole store
		if !c.Verifying.TryLock() {
			return nil, fault.New(fault.Conflict, "the store is being verified; wait for the result")
		}
		defer c.Verifying.Unlock()
	}
	if err := c.note("store.verify", ""); err != nil {
		return nil, err
	}
	begun := c.Store.Now()
	v, err := Verify(c.ctx(), c.Store)
	if v.Time = begun.Unix(); err == nil {
		c.SetMismatches(v.Report.Problems)
		c.Verified.Store(&v)
	}
	return v, err
}

// showVerification returns the last result of this process; nil: there is none.
func showVerification(c *call) (any, error) {
	v, _ := c.Verified.Load().(*Verification)
	return v, nil
}

// Verification is the result of checking a store.
type Verification struct {
	Time int64 `json:"time,omitempty"` // when it began, in Unix seconds; 0: of a backup
	ledgerverify.Report
	Problems []ledgerverify.Problem `json:"problems"`
}

// maxProblems bounds the problems of a report: one error can affect millions of records.
const maxProblems = 100

// domains are the packages with records that refer to the ledger, and their checks.
var domains = []struct {
	name   string
	verify func(r storage.Reader, now time.Time, problem func(format string, args ...any)) error
}{
	{"billing", billingverify.Check},
	{"tasks", taskverify.Tasks},
	{"media", func(r storage.Reader, _ time.Time, problem func(format string, args ...any)) error {
		return media.Verify(r, problem)
	}},
	{"objects", func(r storage.Reader, _ time.Time, problem func(format string, args ...any)) error {
		return ownership.Verify(r, problem)
	}},
}

// collectInterval is the number of bytes that Verify reads between two garbage
// collections. Decoding allocates a multiple of that, and without them the garbage would
// grow to the size of all caches of the store.
const collectInterval = 4 << 20

// collectingReader runs the garbage collector after every collectInterval bytes.
type collectingReader struct {
	storage.Reader
	read int
}

// Get implements [storage.Reader].
func (t *collectingReader) Get(key []byte) ([]byte, error) {
	val, err := t.Reader.Get(key)
	t.count(len(key) + len(val))
	return val, err
}

// Scan implements [storage.Reader].
func (t *collectingReader) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	return t.Reader.Scan(lo, hi, func(key, val []byte) bool {
		t.count(len(key) + len(val))
		return fn(key, val)
	})
}

func (t *collectingReader) count(bytes int) {
	if t.read += bytes; t.read >= collectInterval {
		t.read = 0
		runtime.GC()
	}
}

// Verify checks the ledger and the records that refer to it, in one snapshot.
func Verify(ctx context.Context, store *storage.Store) (v Verification, err error) {
	v.Problems = []ledgerverify.Problem{}
	err = store.View(ctx, func(r storage.Reader) error {
		if err := storage.CheckReadable(r); err != nil {
			return err
		}
		v.Report, err = ledgerverify.Verify(ctx, &collectingReader{Reader: r}, store.Now(), func(p ledgerverify.Problem) {
			if len(v.Problems) < maxProblems {
				v.Problems = append(v.Problems, p)
			}
		}, func(r storage.Reader, problem func(ledgerverify.Problem)) error {
			for _, domain := range domains {
				err := domain.verify(r, store.Now(), func(format string, args ...any) {
					problem(ledgerverify.Problem{Where: domain.name, What: fmt.Sprintf(format, args...)})
				})
				if err != nil {
					return fmt.Errorf("%s: %w", domain.name, err)
				}
			}
			return nil
		})
		return err
	})
	return v, err
}
