package task

import (
	"encoding/json"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

// FuzzRecords gives any bytes to what reads records: a damaged store is told of,
// and never ends the process.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("\x01{}"))
	f.Add([]byte("\x01" + `{"id":"task_AAAAAAAAAAAAAAAAAAAAAAAAAA","state":"success","handover":"accepted","kind":"video"}`))
	f.Add([]byte("\x01" + `{"state":"in_progress","handover":"accepted","progress":-7,"ref":{"id":"x"},"results":[{}]}`))
	f.Add([]byte("\x01" + `{"state":"failed","failure":null,"due":-1,"completed":-1}`))
	f.Add([]byte("\x02"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var rec record
		if storage.DecodeRecord(raw, &rec) == nil {
			for _, key := range rec.indexes() {
				if len(key) == 0 {
					t.Error("an empty key")
				}
			}
			if _, err := json.Marshal(rec.task()); err != nil {
				t.Error(err)
			}
			if _, err := rec.body(); err != nil {
				t.Error(err)
			}
		}
		var v eventRecord
		if storage.DecodeRecord(raw, &v) == nil {
			v.indexes()
			v.delivery()
		}
		_, _ = lastID(raw), timeBefore(raw)
	})
}
