//go:build !windows

package ledger

import (
	"bufio"
	"context"
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

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

var (
	tortureRounds = flag.Int("torture.rounds", 4, "how often the torture test kills its child")
	tortureSeed   = flag.Uint64("torture.seed", 0, "seed of the torture test; 0: a new one")
)

// The environment variables of a child of the torture test: its store and its round.
const (
	childDirectory = "MODELGATE_LEDGER_TORTURE"
	childRound     = "MODELGATE_LEDGER_ROUND"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDirectory); dir != "" {
		round, err := strconv.Atoi(os.Getenv(childRound))
		if err == nil {
			err = runChild(dir, round)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "CHILD FAILED:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	childCallers = 12
	childBuyers  = 4
	childUsers   = 3
	childKeys    = 40 // number of idempotency keys of purchases; each round has new ones
)

func childUser(n int) string { return fmt.Sprint("user", n%childUsers) }

// runChild makes calls and purchases in the child process until it is killed. It acknowledges each
// with a line on standard output:
//
//	called <caller> <number> <charged>   the settlement is queued
//	durable <caller> <number>            the settlement was seen in the store
//	bought <user> <key> <price>
func runChild(dir string, round int) error {
	store, err := openBadger(dir, 5*time.Millisecond)
	if err != nil {
		return err
	}
	l, err := Open(context.Background(), store, Options{})
	if err != nil {
		return err
	}
	t := child{l, store, round}
	for user := range childUsers {
		if err := t.fill(childUser(user)); err != nil {
			return err
		}
	}
	failed := make(chan error)
	for caller := range childCallers {
		go func() { failed <- t.call(caller) }()
	}
	for range childBuyers {
		go func() { failed <- t.buy() }()
	}
	return <-failed
}

type child struct {
	*Ledger
	store *storage.Store
	round int
}

// fill credits a user once a round.
func (t child) fill(user string) error {
	return t.Update(context.Background(), user, nil, func(tx *Txn) error {
		_, err := journal.Book(tx, t.store.Now(), journal.Transfer{
			ID: journal.IDOf("fill", user, fmt.Sprint(t.round)), Kind: journal.Credit, User: user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), 1000*money.Unit),
		})
		return err
	})
}

func callID(round, caller, number int) string {
	return fmt.Sprintf("%d-%d-%d", round, caller, number)
}

func (t child) call(caller int) error {
	ctx := context.Background()
	user := childUser(caller)
	for number := 1; ; number++ {
		r, err := t.Reserve(ctx, Payer{User: user}, 1000)
		if err != nil {
			return err
		}
		c := journal.Call{
			ID: callID(t.round, caller, number), Time: t.store.Now().UnixMilli(), User: user,
			Key: fmt.Sprint("key_", caller), Model: "m", Ended: usage.Complete,
		}
		for range rand.IntN(3) {
			open := c
			open.Ended = ""
			r.Settle(open, money.Amount(rand.IntN(1200)), false)
		}
		charged := r.Settle(c, money.Amount(rand.IntN(1200)), true)
		fmt.Fprintf(os.Stdout, "called %d %d %d\n", caller, number, charged)
		if number%20 != 0 {
			continue
		}
		for found := false; !found; {
			err := t.store.Update(ctx, func(tx storage.Txn) error {
				record, _, err := journal.ReadCall(tx, c.StoreKey(journal.CallPrefix))
				found = record.Ended != ""
				return err
			})
			if err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stdout, "durable %d %d\n", caller, number)
	}
}

// buy makes purchases with idempotency keys that other goroutines use at the same time and that the
// previous round has used. Only the key prevents a second payment.
func (t child) buy() error {
	ctx := context.Background()
	for {
		n := rand.IntN(childKeys)
		user, key, price := childUser(n), fmt.Sprintf("key%d-%d", t.round-rand.IntN(2), n), money.Amount(n+1)*money.Unit/10
		_, _, err := t.Once(ctx, user, IdempotencyKey{Scope: user, Key: key}, func() (*Reservation, error) {
			return t.ReserveWallet(ctx, user, price)
		}, func(tx *Txn) (any, error) {
			_, err := journal.Book(tx, t.store.Now(), journal.Transfer{
				ID: journal.TimedID(t.store.Now()), Kind: journal.Purchase, User: user, Legs: journal.LegsBetween(journal.Wallet(user), journal.Sold, price), Reference: key,
			})
			return price, err
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "bought %s %s %d\n", user, key, price)
	}
}

// acknowledgements has the operations that all children have acknowledged.
type acknowledgements struct {
	charged map[string]money.Amount // by the ids of calls
	made    map[string]int          // number of calls of each caller in a round
	durable map[string]int          // number of those that were seen in the store
	bought  map[string]money.Amount // by user and key
}

// TestTorture repeatedly kills a process that makes calls and purchases in one store. After each
// round the money must add up, the store must have every acknowledged purchase once, and no more
// calls may be lost than may be queued.
func TestTorture(t *testing.T) {
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-torture.seed=%d -torture.rounds=%d", seed, *tortureRounds)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(t.TempDir(), "store")
	acks := acknowledgements{make(map[string]money.Amount), make(map[string]int), make(map[string]int), make(map[string]money.Amount)}
	lines := 0
	for round := range *tortureRounds {
		lines += acks.killed(t, dir, round, 1+random.IntN(3000))
		acks.examine(t, dir)
		if t.Failed() {
			t.Fatalf("after %d rounds", round+1)
		}
	}
	t.Logf("%d acknowledgements, of %d purchases and %d calls", lines, len(acks.bought), len(acks.charged))
	if len(acks.bought) == 0 || len(acks.durable) == 0 && *tortureRounds > 1 {
		t.Error("too few operations were acknowledged: the test has checked nothing")
	}
}

// killed runs a child and kills it after enough lines. It returns the number of lines.
func (acks acknowledgements) killed(t *testing.T, dir string, round, enough int) (lines int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDirectory+"="+dir, childRound+"="+strconv.Itoa(round))
	var stderr strings.Builder
	child.Stderr = &stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { _ = child.Process.Kill() })
	timer := time.AfterFunc(time.Minute, kill)
	defer timer.Stop()

	// The lines that the child wrote before its end are still in the pipe, and count. The last
	// line may be incomplete.
	reader := bufio.NewReader(output)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			break
		}
		if err := acks.parse(round, line); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if lines++; lines == enough {
			kill()
		}
	}
	kill()
	_ = child.Wait() // its error is that it was killed
	if _, reason, own := strings.Cut(stderr.String(), "CHILD FAILED:"); own {
		t.Errorf("the child failed: %s", reason)
	}
	return lines
}

func (acks acknowledgements) parse(round int, line string) error {
	var word, user, key string
	var caller, number int
	var amount int64
	_, _ = fmt.Sscan(line, &word)
	switch word {
	case "called":
		_, err := fmt.Sscan(line, &word, &caller, &number, &amount)
		acks.charged[callID(round, caller, number)] = money.Amount(amount)
		acks.made[fmt.Sprintf("%d-%d", round, caller)] = number
		return err
	case "durable":
		_, err := fmt.Sscan(line, &word, &caller, &number)
		acks.durable[fmt.Sprintf("%d-%d", round, caller)] = number
		return err
	case "bought":
		_, err := fmt.Sscan(line, &word, &user, &key, &amount)
		acks.bought[user+" "+key] = money.Amount(amount)
		return err
	}
	return errors.New("unknown line")
}

// examine opens the store as a gateway does, and compares it with the acknowledgements.
func (acks acknowledgements) examine(t *testing.T, dir string) {
	t.Helper()
	store, err := openBadger(dir, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	l, err := Open(t.Context(), store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	f := &fixture{l, t, store, storagetest.NewClock(time.Now())}
	if problems, _ := f.verify(); len(problems) > 0 {
		t.Errorf("Verify found:\n%s", strings.Join(problems, "\n"))
	}
	acks.examineCalls(f)
	acks.examinePurchases(f)
}

func (acks acknowledgements) examineCalls(f *fixture) {
	stored := make(map[string]journal.Call)
	for user := range childUsers {
		err := f.ScanCalls(f.t.Context(), childUser(user), CallFilter{}, func(c journal.CallRecord) bool {
			stored[c.ID] = c.Call
			return true
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}
	lost := make(map[string]int) // by round and caller
	for caller, made := range acks.made {
		for number := 1; number <= made; number++ {
			id := fmt.Sprintf("%s-%d", caller, number)
			c, found := stored[id]
			complete := found && c.Ended == usage.Complete
			switch {
			case found && c.Ended == "":
				f.t.Errorf("call %s is still open after its process has ended", id)
			case complete && c.Cost != acks.charged[id]:
				f.t.Errorf("call %s was charged %v, the store has %v", id, acks.charged[id], c.Cost)
			case found && !complete && c.Cost > 1000:
				f.t.Errorf("call %s was charged %v, but 1000 were reserved", id, c.Cost)
			case !complete && number <= acks.durable[caller]:
				f.t.Errorf("call %s was seen in the store, but is lost", id)
			case complete && lost[caller] > 0:
				f.t.Errorf("call %s is stored, but an earlier call is lost", id)
			case !complete:
				lost[caller]++
			}
		}
	}
	rounds := make(map[string]int)
	for caller, n := range lost {
		round, _, _ := strings.Cut(caller, "-")
		if rounds[round] += n; rounds[round] > maxQueued {
			f.t.Errorf("%d calls of round %s are lost, more than can be queued", rounds[round], round)
		}
	}
}

func (acks acknowledgements) examinePurchases(f *fixture) {
	paid := make(map[string][]money.Amount)
	err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		for user := range childUsers {
			var bad error
			err := journal.ScanEntries(r, journal.Wallet(childUser(user)), 0, func(e journal.Entry) bool {
				if e.Kind != journal.Purchase {
					return true
				}
				var x journal.Transfer
				x, _, bad = journal.ReadTransfer(r, e.Transfer)
				what := x.User + " " + x.Reference
				paid[what] = append(paid[what], -e.Amount)
				return bad == nil
			})
			if err := errors.Join(err, bad); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	for what, price := range acks.bought {
		if got := paid[what]; len(got) == 0 || got[0] != price {
			f.t.Errorf("purchase %s was acknowledged for %v, but paid with %v", what, price, got)
		}
	}
	for what, got := range paid {
		if len(got) != 1 {
			f.t.Errorf("purchase %s was paid %d times: %v", what, len(got), got)
		}
	}
}
