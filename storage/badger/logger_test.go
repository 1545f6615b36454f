package badger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-modelgate/modelgate/storage"
)

// TestAFailedSyncOfTheValueLogStopsCommits logs the error as Badger does, which reports it only in
// its log.
func TestAFailedSyncOfTheValueLogStopsCommits(t *testing.T) {
	t.Parallel()
	e := openTest(t, t.TempDir())
	put(t, e, "key", nil)
	e.log.Errorf(syncFailed+": %v\n", errors.New("input/output error"))
	for range 2 {
		err := e.Update(t.Context(), func(tx storage.Txn) error { return tx.Set([]byte("key"), nil, never) })
		if err == nil {
			t.Error("a commit after the failure was acknowledged")
		}
		for _, expected := range []error{storage.ErrConflict, storage.ErrTooLarge, storage.ErrLowSpace, storage.ErrUnknown} {
			if errors.Is(err, expected) {
				t.Errorf("%v would be tried again", err)
			}
		}
	}
}

// TestBadgerStillLogsSyncErrors compares the text of that log line with the
// source of the Badger version in use.
func TestBadgerStillLogsSyncErrors(t *testing.T) {
	t.Parallel()
	file, _ := runtime.FuncForPC(reflect.ValueOf(badger.Open).Pointer()).FileLine(0)
	source, err := os.ReadFile(filepath.Join(filepath.Dir(file), "value.go"))
	if err != nil {
		t.Skip("no source here: ", err)
	}
	if !bytes.Contains(source, []byte(`vlog.opt.Errorf("`+syncFailed)) {
		t.Errorf("Badger no longer logs %q: find out how it reports a failed sync", syncFailed)
	}
}

func TestMessagesOfBadger(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	c := testConfig(t.TempDir())
	c.logger = zap.New(core)
	e := openWith(t, c)
	put(t, e, "key", nil)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if logs.Len() > 0 {
		t.Errorf("routine messages at info level: %v", logs.All())
	}
	l := &logger{zap: c.logger}
	l.Warningf("%d tables\n", 3)
	if got := logs.All(); len(got) != 1 || got[0].Level != zap.WarnLevel || got[0].ContextMap()["detail"] != "3 tables" {
		t.Errorf("a warning became %v", got)
	}
}
