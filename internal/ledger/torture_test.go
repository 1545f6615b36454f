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

// The environment of a child of the torture test: its store, and its round.
const (
	childDirectory = "MODELGATE_LEDGER_TORTURE"
	childRound     = "MODELGATE_LEDGER_ROUND"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDirectory); dir != "" {
		round, err := strconv.Atoi(os.Getenv(childRound))
		if err == nil {
			err = torment(dir, round)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "TORMENT", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	tormentCallers = 12
	tormentBuyers  = 4
	tormentUsers   = 3
	tormentKeys    = 40 // of purchases, new ones in every round
)

func tormentUser(n int) string { return fmt.Sprint("user", n%tormentUsers) }

// torment is the child: it makes calls and purchases until it is killed, and
// acknowledges each by a line on its standard output.
//
//	called <caller> <number> <charged>   its settlement is queued
//	durable <caller> <number>            its settlement was seen in the store
//	bought <user> <key> <price>
func torment(dir string, round int) error {
	store, err := openBadger(dir, 5*time.Millisecond)
	if err != nil {
		return err
	}
	l, err := Open(context.Background(), store, Options{})
	if err != nil {
		return err
	}
	t := tormentor{l, store, round}
	for user := range tormentUsers {
		if err := t.fill(tormentUser(user)); err != nil {
			return err
		}
	}
	failed := make(chan error)
	for caller := range tormentCallers {
		go func() { failed <- t.call(caller) }()
	}
	for range tormentBuyers {
		go func() { failed <- t.buy() }()
	}
	return <-failed
}

type tormentor struct {
	*Ledger
	store *storage.Store
	round int
}

// fill gives a user money, once a round.
func (t tormentor) fill(user string) error {
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

func (t tormentor) call(caller int) error {
	ctx := context.Background()
	user := tormentUser(caller)
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

// buy buys under keys that others use at the same time, and have used in the
// round before.
// Nothing but the idempotency key keeps it from being paid twice.
func (t tormentor) buy() error {
	ctx := context.Background()
	for {
		n := rand.IntN(tormentKeys)
		user, key, price := tormentUser(n), fmt.Sprintf("key%d-%d", t.round-rand.IntN(2), n), money.Amount(n+1)*money.Unit/10
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

// acknowledged is what children have said in all.
type acknowledged struct {
	charged map[string]money.Amount // by the ids of calls
	made    map[string]int          // calls of each caller in a round
	durable map[string]int          // of those, how many were seen in the store
	bought  map[string]money.Amount // by user and key
}

// TestTorture kills a process that makes calls and sells plans, again and again
// over one store, and looks each time whether the money adds up, every purchase
// acknowledged is there once, and no more calls are forgotten than may be queued.
func TestTorture(t *testing.T) {
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-torture.seed=%d -torture.rounds=%d", seed, *tortureRounds)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(t.TempDir(), "store")
	said := acknowledged{make(map[string]money.Amount), make(map[string]int), make(map[string]int), make(map[string]money.Amount)}
	lines := 0
	for round := range *tortureRounds {
		lines += said.killed(t, dir, round, 1+random.IntN(3000))
		said.examine(t, dir)
		if t.Failed() {
			t.Fatalf("after %d rounds", round+1)
		}
	}
	t.Logf("%d acknowledgements, %d of them of purchases and %d of calls, survived", lines, len(said.bought), len(said.charged))
	if len(said.bought) == 0 || len(said.durable) == 0 && *tortureRounds > 1 {
		t.Error("hardly anything was acknowledged; the test has shown nothing")
	}
}

// killed runs a child and kills it after so many lines. It returns how many there
// were.
func (said acknowledged) killed(t *testing.T, dir string, round, enough int) (lines int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDirectory+"="+dir, childRound+"="+strconv.Itoa(round))
	var complaints strings.Builder
	child.Stderr = &complaints
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

	// What the child wrote before its end is still in the pipe, and counts. The
	// last line may be cut.
	reader := bufio.NewReader(output)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			break
		}
		if err := said.hear(round, line); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if lines++; lines == enough {
			kill()
		}
	}
	kill()
	_ = child.Wait() // its error is that it was killed
	if _, complaint, own := strings.Cut(complaints.String(), "TORMENT"); own {
		t.Errorf("the child said: %s", complaint)
	}
	return lines
}

func (said acknowledged) hear(round int, line string) error {
	var word, user, key string
	var caller, number int
	var amount int64
	_, _ = fmt.Sscan(line, &word)
	switch word {
	case "called":
		_, err := fmt.Sscan(line, &word, &caller, &number, &amount)
		said.charged[callID(round, caller, number)] = money.Amount(amount)
		said.made[fmt.Sprintf("%d-%d", round, caller)] = number
		return err
	case "durable":
		_, err := fmt.Sscan(line, &word, &caller, &number)
		said.durable[fmt.Sprintf("%d-%d", round, caller)] = number
		return err
	case "bought":
		_, err := fmt.Sscan(line, &word, &user, &key, &amount)
		said.bought[user+" "+key] = money.Amount(amount)
		return err
	}
	return errors.New("what does it mean?")
}

// examine opens the store as a gateway does and looks at everything.
func (said acknowledged) examine(t *testing.T, dir string) {
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
	said.examineCalls(f)
	said.examinePurchases(f)
}

func (said acknowledged) examineCalls(f *fixture) {
	there := make(map[string]journal.Call)
	for user := range tormentUsers {
		err := f.ScanCalls(f.t.Context(), tormentUser(user), CallFilter{}, func(c journal.CallRecord) bool {
			there[c.ID] = c.Call
			return true
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}
	forgotten := make(map[string]int) // by round
	for who, made := range said.made {
		for number := 1; number <= made; number++ {
			id := fmt.Sprintf("%s-%d", who, number)
			c, found := there[id]
			whole := found && c.Ended == usage.Complete
			switch {
			case found && c.Ended == "":
				f.t.Errorf("call %s is under way in a process that has ended", id)
			case whole && c.Cost != said.charged[id]:
				f.t.Errorf("call %s was charged %v, the store has %v", id, said.charged[id], c.Cost)
			case found && !whole && c.Cost > 1000:
				f.t.Errorf("call %s was charged %v, of 1000 reserved", id, c.Cost)
			case !whole && number <= said.durable[who]:
				f.t.Errorf("call %s was seen in the store, and is gone", id)
			case whole && forgotten[who] > 0:
				f.t.Errorf("call %s is there, and one before it is not", id)
			case !whole:
				forgotten[who]++
			}
		}
	}
	rounds := make(map[string]int)
	for who, n := range forgotten {
		round, _, _ := strings.Cut(who, "-")
		if rounds[round] += n; rounds[round] > maxQueued {
			f.t.Errorf("%d calls of %s are forgotten, more than can be queued", rounds[round], round)
		}
	}
}

func (said acknowledged) examinePurchases(f *fixture) {
	paid := make(map[string][]money.Amount)
	err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		for user := range tormentUsers {
			var bad error
			err := journal.ScanEntries(r, journal.Wallet(tormentUser(user)), 0, func(e journal.Entry) bool {
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
	for what, price := range said.bought {
		if got := paid[what]; len(got) == 0 || got[0] != price {
			f.t.Errorf("%s was acknowledged for %v, and was paid by %v", what, price, got)
		}
	}
	for what, got := range paid {
		if len(got) != 1 {
			f.t.Errorf("%s was paid %d times: %v", what, len(got), got)
		}
	}
}
