package storage_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// recordingTxn is a transaction that records writes, and refuses one key.
type recordingTxn struct {
	storage.Txn
	notes   []string
	refused string
}

var errRefused = errors.New("refused")

func (n *recordingTxn) Set(key, val []byte, purge time.Time) error {
	if string(key) == n.refused {
		return errRefused
	}
	if len(val) > 0 || !purge.IsZero() {
		n.notes = append(n.notes, "not empty or not for ever:")
	}
	n.notes = append(n.notes, "+"+string(key))
	return nil
}

func (n *recordingTxn) Delete(key []byte) error {
	if string(key) == n.refused {
		return errRefused
	}
	n.notes = append(n.notes, "-"+string(key))
	return nil
}

// keys returns the keys in a line.
func keys(line string) (list [][]byte) {
	for _, key := range strings.Fields(line) {
		list = append(list, []byte(key))
	}
	return list
}

func TestReindexWritesOnlyChangedKeys(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ had, has, want string }{
		"nothing":             {"", "", ""},
		"a new record":        {"", "a b", "+a +b"},
		"one that is removed": {"a b", "", "-a -b"},
		"one as it was":       {"a b", "b a", ""},
		"one that moved":      {"a b c", "a d c", "-b +d"},
		"one that lost some":  {"a b c", "b", "-a -c"},
	} {
		n := &recordingTxn{}
		if err := storage.Reindex(n, keys(c.had), keys(c.has)); err != nil || !slices.Equal(n.notes, strings.Fields(c.want)) {
			t.Errorf("%s: it wrote %q, %v; want %q", what, n.notes, err, c.want)
		}
	}
}

func TestReindexStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	for refused, want := range map[string]string{"a": "", "b": "-a", "c": "-a -b", "d": "-a -b +c"} {
		n := &recordingTxn{refused: refused}
		if err := storage.Reindex(n, keys("a b"), keys("c d")); !errors.Is(err, errRefused) || !slices.Equal(n.notes, strings.Fields(want)) {
			t.Errorf("%s is refused: it wrote %q, %v; want %q", refused, n.notes, err, want)
		}
	}
}
