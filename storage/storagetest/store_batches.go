package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/storage"
)

// With gathering, posts wait for more posts without a time limit. With immediate,
// they do not wait.
var (
	gathering = storage.Options{Gather: time.Hour}
	immediate = storage.Options{Gather: -1}
)

func postAndFlush(t *testing.T, f *fixture) {
	s := f.store(gathering)
	p := &posts{t: t, s: s}
	var want []string
	for i := range 10 {
		key := fmt.Sprintf("k%d", i)
		p.set(key, "posted")
		want = append(want, key, "posted")
	}
	if err := s.Post(t.Context(), setting("l", "no callback"), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, s, append(want, "l", "no callback")...)
	p.succeed()
	expect(t, f.Engine, append(want, "l", "no callback")...)
}

func updateEndsGather(t *testing.T, f *fixture) {
	s := f.store(gathering)
	p := &posts{t: t, s: s}
	for i := range 5 {
		p.set(fmt.Sprintf("k%d", i), "posted")
	}
	set(t, s, "u", "updated")
	p.succeed()
	if n := f.Commits(); n != 1 {
		t.Errorf("5 posts and an update took %d commits, want 1", n)
	}
	stats := s.Stats()
	if stats.Batches != 1 || stats.Committed != 6 || stats.Queued != 0 {
		t.Errorf("the counts are %+v, want 1 batch, 6 committed, none queued", stats)
	}
}

func batchOrder(t *testing.T, f *fixture) {
	s := f.store(immediate)
	p := &posts{t: t, s: s}
	release := hold(t, s)
	want := ""
	for i := range 26 {
		letter := string(rune('a' + i))
		want += letter
		p.post(func(txn storage.Txn) error {
			word, err := txn.Get([]byte("word"))
			if err != nil {
				return err
			}
			return txn.Set([]byte("word"), []byte(string(word)+letter), never)
		})
	}
	release()
	p.succeed()
	expect(t, s, "word", want)
	if n := f.Commits(); n != 2 {
		t.Errorf("there were %d commits, want one for the blocking closure and one for all others", n)
	}
}

func batchLimit(t *testing.T, f *fixture) {
	s := f.store(storage.Options{Gather: -1, MaxBatch: 4})
	p := &posts{t: t, s: s}
	release := hold(t, s)
	for i := range 10 {
		p.set(fmt.Sprintf("k%d", i), "")
	}
	release()
	p.succeed()
	if n := f.Commits(); n != 1+3 {
		t.Errorf("10 closures in batches of 4 took %d commits, want 3", n-1)
	}
}

func oneRollsBack(t *testing.T, f *fixture) {
	s := f.store(immediate)
	set(t, s, "a", "1", "b", "2", "c", "3")
	p := &posts{t: t, s: s}
	broken := errors.New("broken")
	release := hold(t, s)
	p.post(func(txn storage.Txn) error {
		return errors.Join(txn.Set([]byte("a"), []byte("11"), never), txn.Delete([]byte("b")))
	})
	p.post(func(txn storage.Txn) error {
		err := errors.Join(
			txn.Set([]byte("a"), []byte("undone"), never),
			txn.Set([]byte("a"), []byte("undone twice"), never),
			txn.Set([]byte("b"), []byte("undone"), never),
			txn.Delete([]byte("c")),
			txn.Set([]byte("d"), []byte("undone"), never),
			holds(txn, nil, nil, "a", "undone twice", "b", "undone", "d", "undone"))
		if err != nil {
			t.Error(err)
		}
		return broken
	})
	p.post(func(txn storage.Txn) error {
		return errors.Join(holds(txn, nil, nil, "a", "11", "c", "3"), txn.Set([]byte("e"), []byte("5"), never))
	})
	release()
	outcomes := p.wait()
	if outcomes[0] != nil || outcomes[1] != broken || outcomes[2] != nil {
		t.Errorf("the outcomes are %v, want only the second to fail, with its error unchanged", outcomes)
	}
	expect(t, s, "a", "11", "c", "3", "e", "5")
	if stats := s.Stats(); stats.RolledBack != 1 {
		t.Errorf("%d closures rolled back, want 1", stats.RolledBack)
	}
}

func onePanics(t *testing.T, f *fixture) {
	s := f.store(immediate)
	p := &posts{t: t, s: s}
	release := hold(t, s)
	p.set("a", "1")
	cause := errors.New("ouch")
	p.post(func(txn storage.Txn) error {
		txn.Set([]byte("a"), []byte("undone"), never)
		panic(cause)
	})
	p.set("b", "2")
	release()
	outcomes := p.wait()
	var caught *storage.PanicError
	switch {
	case outcomes[0] != nil || outcomes[2] != nil:
		t.Errorf("the other closures got %v and %v", outcomes[0], outcomes[2])
	case !errors.As(outcomes[1], &caught) || !errors.Is(outcomes[1], cause):
		t.Errorf("the outcome of a panic is %v, want a PanicError that wraps the cause", outcomes[1])
	case !strings.Contains(string(caught.Stack), "onePanics"):
		t.Errorf("the stack does not contain the closure:\n%s", caught.Stack)
	}
	expect(t, s, "a", "1", "b", "2")
	if err := s.Update(t.Context(), func(storage.Txn) error { panic(nil) }); !errors.As(err, &caught) {
		t.Errorf("panic(nil) was returned as %v", err)
	}
}

// batchMatchesModel runs random closures, some of which fail, in one batch. It
// applies them to a map as well, and compares the results.
func batchMatchesModel(t *testing.T, f *fixture) {
	s := f.store(immediate)
	aborted := errors.New("aborted")
	committed := map[string]string{} // content of earlier runs
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.StringMatching(`[a-d]{1,2}`)
		release := hold(t, s)
		defer release()
		p := &posts{t: t, s: s}
		fails := make([]bool, rapid.IntRange(1, 8).Draw(rt, "closures"))
		states := make([]map[string]string, len(fails)+1) // before each closure, and at the end
		states[0] = committed
		for i := range fails {
			ops := rapid.SliceOfN(operations(key), 0, 10).Draw(rt, "operations")
			fails[i] = rapid.IntRange(0, 3).Draw(rt, "fails") == 0
			p.post(func(txn storage.Txn) error {
				states[i+1] = states[i]
				model := maps.Clone(states[i])
				for _, op := range ops {
					if err := op.perform(txn, model); err != nil {
						return err
					}
				}
				if fails[i] {
					return aborted
				}
				states[i+1] = model
				return nil
			})
		}
		release()
		for i, err := range p.wait() {
			if fails[i] != (err == aborted) || !fails[i] && err != nil {
				rt.Errorf("closure %d: %v", i, err)
			}
		}
		committed = states[len(fails)]
		if err := s.View(t.Context(), func(r storage.Reader) error {
			return holds(r, nil, nil, sorted(committed, "", "")...)
		}); err != nil {
			rt.Fatal(err)
		}
	})
}

// storeTransfers moves money by Update and by Post.
func storeTransfers(t *testing.T, f *fixture) {
	s := f.store(storage.Options{Gather: time.Millisecond, MaxBatch: 16})
	openAccounts(t, s)
	p := &posts{t: t, s: s}
	concurrently(8, func(i int) {
		random := rand.New(rand.NewPCG(4, uint64(i)))
		for round := range 50 {
			seed := random.Uint64()
			move := func(txn storage.Txn) error { return transfer(txn, rand.New(rand.NewPCG(seed, 0))) }
			if round%2 == 0 {
				p.post(move)
			} else if err := s.Update(t.Context(), move); err != nil {
				t.Error(err)
			}
			if err := s.View(t.Context(), conserved); err != nil {
				t.Error(err)
			}
		}
	})
	p.succeed()
	view(t, f.Engine, conserved)
}

func storeBackup(t *testing.T, f *fixture) {
	if err := f.store(immediate).Backup(t.Context(), new(bytes.Buffer)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an engine that is no Backuper: %v, want errors.ErrUnsupported", err)
	}
	if _, ok := f.Engine.(storage.Backuper); !ok {
		return
	}
	s := storage.New(f.Engine, immediate)
	set(t, s, "a", "1")
	var copied bytes.Buffer
	if err := s.Backup(t.Context(), &copied); err != nil || copied.Len() == 0 {
		t.Errorf("backup of %d bytes: %v", copied.Len(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), &copied); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("backup of a closed store: %v, want ErrClosed", err)
	}
}
