package callback

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// FuzzRecords decodes arbitrary bytes: a damaged record must cause an error and never a
// panic.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("\x01{}"))
	f.Add([]byte("\x01" + `{"id":"task_AAAAAAAAAAAAAAAAAAAAAAAAAA","state":"success","delivery":"accepted","kind":"video"}`))
	f.Add([]byte("\x01" + `{"state":"in_progress","delivery":"accepted","progress":-7,"ref":{"id":"x"},"results":[{}]}`))
	f.Add([]byte("\x01" + `{"state":"failed","failure":null,"due":-1,"completed":-1}`))
	f.Add([]byte("\x02"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var rec record.Record
		if storage.DecodeRecord(raw, &rec) == nil {
			if err := record.Tasks.Put(discarding{}, nil, &rec); err != nil {
				t.Error(err)
			}
			if _, err := json.Marshal(rec.Task()); err != nil {
				t.Error(err)
			}
			if _, err := bodyOf(&rec); err != nil {
				t.Error(err)
			}
		}
		var v record.Event
		if storage.DecodeRecord(raw, &v) == nil {
			if err := record.Events.Put(discarding{}, nil, &v); err != nil {
				t.Error(err)
			}
			callbackOf(&v)
		}
		_, _ = record.LastID(raw), record.TimeBefore(raw)
	})
}

// discarding is a transaction that discards all writes and has no records.
type discarding struct{ storage.Txn }

func (discarding) Set(key, _ []byte, _ time.Time) error {
	if len(key) == 0 {
		return errors.New("an empty key")
	}
	return nil
}
