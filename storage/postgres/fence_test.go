package postgres

import (
	"errors"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/postgres/postgrestest"
)

func TestAnEndedEpochCommitsNothing(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t)
	dsn := s.Database()
	first := opened(t, newOpener(t, dsn, "fence"))
	second := newOpener(t, dsn, "fence")
	if _, err := second.Open(t.Context()); !errors.Is(err, storage.ErrStandby) {
		t.Fatalf("a second gateway gets %v, want ErrStandby", err)
	}
	s.Query(dsn, `update fence.node set ended = now()`)
	opened(t, second)
	err := first.Update(t.Context(), func(txn storage.Txn) error { return txn.Set([]byte("a"), []byte("1"), never) })
	if !errors.Is(err, storage.ErrFenced) {
		t.Errorf("the first gateway commits with %v, want ErrFenced", err)
	}
	<-first.Fenced()
	if n := s.Query(dsn, `select count(*) from fence.kv`); n != "0" {
		t.Errorf("%s rows were written after the end of the epoch", n)
	}
}
