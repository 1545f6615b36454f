package caddymodule

import (
	"context"

	"github.com/caddy-modelgate/modelgate/storage"
)

// backupKey is the key of the time of the last backup. The time is stored, so it survives a restart.
var backupKey = []byte("meta/backup")

type backupRecord struct {
	Time int64 `json:"time"` // Unix seconds
}

// NoteBackup records that a backup was completed now.
func (rt *Runtime) NoteBackup(ctx context.Context) error {
	return rt.Store.Update(ctx, func(t storage.Txn) error {
		return storage.SetRecord(t, backupKey, backupRecord{rt.Store.Now().Unix()})
	})
}

// LastBackup returns when the last backup was completed, in Unix seconds; 0 if none was.
func (rt *Runtime) LastBackup(ctx context.Context) (int64, error) {
	var last backupRecord
	err := rt.Store.View(ctx, func(r storage.Reader) error {
		_, err := storage.GetRecord(r, backupKey, &last)
		return err
	})
	return last.Time, err
}
