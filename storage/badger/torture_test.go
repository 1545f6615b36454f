//go:build !windows

package badger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

var (
	tortureRounds = flag.Int("torture.rounds", 8, "how often the torture test kills its child")
	tortureSeed   = flag.Uint64("torture.seed", 0, "seed of the torture test; 0: a new one")
)

// childDirectory is the environment variable with the store of a child process
// of the test.
const childDirectory = "MODELGATE_TORTURE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDirectory); dir != "" {
		if err := tortureChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	writers  = 6
	accounts = 16
	total    = 1_000_000 // sum of all accounts, constant
	kept     = 200       // number of entries of each writer
)

// The keys of the torture test. A writer's commit number n writes the three
// that name it, moves money between accounts and deletes entry n-kept.
func sequenceKey(writer int) []byte { return fmt.Appendf(nil, "sequence/%02d", writer) }
func entryKey(writer int, n uint64) []byte {
	return fmt.Appendf(nil, "entry/%02d/%016x", writer, n)
}
func accountKey(account int) []byte { return fmt.Appendf(nil, "account/%02d", account) }

// payload returns entry n of a writer: up to 8 KiB to fill memtables, and
// sometimes enough for the value log.
func payload(writer int, n uint64) []byte {
	r := rand.New(rand.NewPCG(uint64(writer), n))
	size := r.IntN(8 << 10)
	if n%150 == 149 {
		size = maxInline + 1
	}
	pattern := binary.BigEndian.AppendUint64(nil, r.Uint64())
	return bytes.Repeat(pattern, size/len(pattern)+1)
}

// tortureChild is the child process: it writes until it is killed, and
// acknowledges each commit with a line on standard output.
func tortureChild(dir string) error {
	e, err := open(config{dir: dir, size: sizings["small"], minFree: 1, free: freeSpace, logger: zap.NewNop()})
	if err != nil {
		return err
	}
	store := storage.New(e, storage.Options{Gather: time.Millisecond})
	err = store.Update(context.Background(), func(tx storage.Txn) error {
		first, err := tx.Get(accountKey(0))
		if err != nil || first != nil {
			return err
		}
		for account := range accounts {
			balance := 0
			if account == 0 {
				balance = total
			}
			if err := tx.Set(accountKey(account), strconv.AppendInt(nil, int64(balance), 10), never); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for writer := range writers {
		go func() { failed <- write(store, writer) }()
	}
	return <-failed
}

// write commits one transaction after another, every third writer with Post.
func write(store *storage.Store, writer int) error {
	ctx := context.Background()
	abandoned := errors.New("abandoned")
	for {
		var n uint64
		closure := func(tx storage.Txn) (err error) {
			n, err = step(tx, writer)
			return err
		}
		acknowledge := func() { fmt.Fprintf(os.Stdout, "%d %d\n", writer, n) }
		var err error
		if writer%3 == 0 {
			outcome := make(chan error)
			err = store.Post(ctx, closure, func(err error) {
				if err == nil {
					acknowledge()
				}
				go func() { outcome <- err }()
			})
			if err == nil {
				err = <-outcome
			}
		} else if err = store.Update(ctx, closure); err == nil {
			acknowledge()
		}
		if err != nil {
			return err
		}
		err = store.Update(ctx, func(tx storage.Txn) error {
			if err := tx.Set(fmt.Appendf(nil, "abandoned/%d", writer), nil, never); err != nil {
				return err
			}
			return abandoned
		})
		if !errors.Is(err, abandoned) {
			return fmt.Errorf("an abandoned transaction: %w", err)
		}
	}
}

// step performs one transaction of a writer and returns its number.
func step(tx storage.Txn, writer int) (uint64, error) {
	last, err := tx.Get(sequenceKey(writer))
	if err != nil {
		return 0, err
	}
	n := uint64(1)
	if last != nil {
		n = binary.BigEndian.Uint64(last) + 1
	}
	if err := tx.Set(sequenceKey(writer), binary.BigEndian.AppendUint64(nil, n), never); err != nil {
		return 0, err
	}
	if err := tx.Set(entryKey(writer, n), payload(writer, n), never); err != nil {
		return 0, err
	}
	if n > kept {
		if err := tx.Delete(entryKey(writer, n-kept)); err != nil {
			return 0, err
		}
	}
	amount := 1 + rand.IntN(100)
	from := rand.IntN(accounts)
	to := (from + 1 + rand.IntN(accounts-1)) % accounts
	return n, errors.Join(move(tx, from, -amount), move(tx, to, amount))
}

func move(tx storage.Txn, account, amount int) error {
	val, err := tx.Get(accountKey(account))
	if err != nil {
		return err
	}
	balance, err := strconv.Atoi(string(val))
	if err != nil {
		return err
	}
	return tx.Set(accountKey(account), strconv.AppendInt(nil, int64(balance+amount), 10), never)
}

// TestTorture repeatedly kills a writing process over one directory. Each time
// it checks that everything acknowledged is present, nothing is partial, and
// the accounts are balanced.
func TestTorture(t *testing.T) {
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-torture.seed=%d -torture.rounds=%d", seed, *tortureRounds)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(t.TempDir(), "store")

	var acked [writers]uint64
	commits := 0
	for round := range *tortureRounds {
		// One kill while it writes, and sometimes one more during recovery.
		commits += killed(t, dir, &acked, 1+random.IntN(400), time.Minute)
		if random.IntN(2) == 0 {
			commits += killed(t, dir, &acked, 1<<30, time.Duration(random.IntN(60_000))*time.Microsecond)
		}
		examine(t, dir, &acked)
		if t.Failed() {
			t.Fatalf("after %d rounds and %d acknowledged commits", round+1, commits)
		}
	}
	t.Logf("%d acknowledged commits survived %d rounds", commits, *tortureRounds)
	if commits < *tortureRounds {
		t.Error("too little was committed: the test is not effective")
	}
}

// killed runs a child and kills it after a number of acknowledged commits or
// some time. It adds the acknowledged commits to acked and returns their
// number.
func killed(t *testing.T, dir string, acked *[writers]uint64, enough int, late time.Duration) (commits int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDirectory+"="+dir)
	var messages strings.Builder
	child.Stderr = &messages
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { child.Process.Kill() })
	timer := time.AfterFunc(late, kill)
	defer timer.Stop()

	// The pipe still has the lines that the child wrote before its end, and they
	// count. The last line may be incomplete.
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			break
		}
		var writer int
		var n uint64
		if _, err := fmt.Sscan(line, &writer, &n); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if n <= acked[writer] {
			t.Errorf("writer %d acknowledged %d after %d", writer, n, acked[writer])
		}
		acked[writer] = n
		if commits++; commits == enough {
			kill()
		}
	}
	kill()
	child.Wait() // the error reports that it was killed
	if messages.Len() > 0 {
		t.Errorf("the child wrote to standard error: %s", messages.String())
	}
	return commits
}

// examine opens the store and checks it. Commits without an acknowledgement
// count as acknowledged from now on.
func examine(t *testing.T, dir string, acked *[writers]uint64) {
	t.Helper()
	c := testConfig(dir)
	e, err := open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	err = e.View(t.Context(), func(r storage.Reader) error {
		for writer := range writers {
			last, err := r.Get(sequenceKey(writer))
			if err != nil {
				return err
			}
			var n uint64
			if last != nil {
				n = binary.BigEndian.Uint64(last)
			}
			if n < acked[writer] {
				t.Errorf("writer %d: commit %d was acknowledged, the last one in the store is %d", writer, acked[writer], n)
			}
			acked[writer] = n

			want := uint64(1)
			if n > kept {
				want = n - kept + 1
			}
			prefix := fmt.Appendf(nil, "entry/%02d/", writer)
			err = r.Scan(prefix, append(prefix[:len(prefix)-1:len(prefix)-1], '0'), func(key, val []byte) bool {
				if !bytes.Equal(key, entryKey(writer, want)) || !bytes.Equal(val, payload(writer, want)) {
					t.Errorf("writer %d: %s with %d bytes instead of entry %d", writer, key, len(val), want)
					return false
				}
				want++
				return true
			})
			if err != nil {
				return err
			}
			if want != n+1 {
				t.Errorf("writer %d: entries up to %d, commits up to %d", writer, want-1, n)
			}
		}
		sum, found := 0, 0
		err := r.Scan([]byte("account/"), []byte("account0"), func(_, val []byte) bool {
			balance, err := strconv.Atoi(string(val))
			if err != nil {
				t.Error(err)
			}
			sum += balance
			found++
			return true
		})
		// Before the first transaction there are no accounts.
		fresh := found == 0 && *acked == [writers]uint64{}
		if err == nil && !fresh && (found != accounts || sum != total) {
			t.Errorf("%d accounts hold %d, want %d with %d", found, sum, accounts, total)
		}
		return errors.Join(err, r.Scan([]byte("abandoned/"), []byte("abandoned0"), func(key, _ []byte) bool {
			t.Errorf("%s: an aborted transaction was committed", key)
			return true
		}))
	})
	if err != nil {
		t.Error(err)
	}
}
