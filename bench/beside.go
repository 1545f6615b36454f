package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// besideCommits is the trial that compares a durable operation with commits of
// one small record, in one process and one store.
type besideCommits struct {
	role        string // of the process that runs the operation
	Concurrency int    // goroutines
	Users       int    // whose operations they are, in turn
}

// besideOrder is the order of that process.
type besideOrder struct {
	besideCommits
	Turns   turns
	Profile string // file for a CPU profile of all turns; empty for none
}

// pair implements trial.
func (c besideCommits) pair(ctx context.Context, b *bench, name string) (p pair, err error) {
	dir, err := os.MkdirTemp(b.dir, name+"-")
	if err != nil {
		return p, err
	}
	o := besideOrder{besideCommits: c, Turns: b.turns}
	if b.profiles != "" {
		o.Profile = filepath.Join(b.profiles, name+".pprof")
	}
	err = b.runRole(ctx, c.role, b.one, storeOrder[besideOrder]{dir, o}, &p)
	return p, err
}

// commit commits one small record.
func (b *testStore) commit(ctx context.Context, n int64) error {
	return b.store.Update(ctx, func(t storage.Txn) error {
		return t.Set(fmt.Appendf(nil, "bench/%012d", n), []byte("a small record"), time.Time{})
	})
}
