package adminapi

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/media"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// verifyStore checks the open store and sets the metric of problems.
func verifyStore(c *call) (any, error) {
	v, err := Verify(c.ctx(), c.Store)
	if err == nil {
		c.SetMismatches(v.Report.Problems)
	}
	return v, err
}

// Verification is what came of checking a store.
type Verification struct {
	ledger.Report
	Problems []ledger.Problem `json:"problems"`
}

// maxProblems bounds how many problems are told: one mistake can show in
// millions of records.
const maxProblems = 100

// domains are what rests on the ledger, each with what checks it.
var domains = []struct {
	name   string
	verify func(r storage.Reader, now time.Time, problem func(format string, args ...any)) error
}{
	{"billing", billing.Verify},
	{"tasks", task.Verify},
	{"media", func(r storage.Reader, _ time.Time, problem func(format string, args ...any)) error {
		return media.Verify(r, problem)
	}},
}

// tidyEvery is how many bytes Verify reads between two collections of garbage.
// What it makes of them is some times that, and the runtime by itself would let
// it come to as much as all caches of the store hold.
const tidyEvery = 4 << 20

// tidied is a reader that has its garbage collected on the way.
type tidied struct {
	storage.Reader
	read int
}

// Get implements [storage.Reader].
func (t *tidied) Get(key []byte) ([]byte, error) {
	val, err := t.Reader.Get(key)
	t.count(len(key) + len(val))
	return val, err
}

// Scan implements [storage.Reader].
func (t *tidied) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	return t.Reader.Scan(lo, hi, func(key, val []byte) bool {
		t.count(len(key) + len(val))
		return fn(key, val)
	})
}

func (t *tidied) count(bytes int) {
	if t.read += bytes; t.read >= tidyEvery {
		t.read = 0
		runtime.GC()
	}
}

// Verify checks the ledger and all that rests on it in one snapshot.
func Verify(ctx context.Context, store *storage.Store) (v Verification, err error) {
	v.Problems = []ledger.Problem{}
	err = store.View(ctx, func(r storage.Reader) error {
		if err := storage.CheckReadable(r); err != nil {
			return err
		}
		v.Report, err = ledger.Verify(ctx, &tidied{Reader: r}, store.Now(), func(p ledger.Problem) {
			if len(v.Problems) < maxProblems {
				v.Problems = append(v.Problems, p)
			}
		}, func(r storage.Reader, problem func(ledger.Problem)) error {
			for _, domain := range domains {
				err := domain.verify(r, store.Now(), func(format string, args ...any) {
					problem(ledger.Problem{Where: domain.name, What: fmt.Sprintf(format, args...)})
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
