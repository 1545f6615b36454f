package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// besideCommits is the trial of something durable beside commits of one small
// record, in one process and one store.
type besideCommits struct {
	role  string // of the process in which it is done
	Hands int    // that do it at once
	Users int    // for whom it is done, in turn
}

// besideOrder is what that process must know.
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
	err = b.hire(ctx, c.role, b.one, storeOrder[besideOrder]{dir, o}, &p)
	return p, err
}

// commit commits one small record.
func (b *books) commit(ctx context.Context, n int64) error {
	return b.store.Update(ctx, func(t storage.Txn) error {
		return t.Set(fmt.Appendf(nil, "bench/%012d", n), []byte("a small record"), time.Time{})
	})
}
