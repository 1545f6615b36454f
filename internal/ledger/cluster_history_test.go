package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// maxHistoryCalls bounds the calls of a user in one history.
const maxHistoryCalls = 64

// walletState is the sequential specification of a wallet: its balance, and what each call holds of it.
type walletState struct {
	balance money.Amount
	held    [maxHistoryCalls]money.Amount
}

func (s *walletState) reserved() (sum money.Amount) {
	for _, h := range s.held {
		sum += h
	}
	return sum
}

// walletOp is an operation on a wallet: "top up", "refund" as far as there is money, "reserve" for a call,
// "charge" at the end of the call, "release" by the end of its epoch, or "read".
type walletOp struct {
	do     string
	call   int
	amount money.Amount
}

// walletResult is what an operation returns.
type walletResult struct {
	told     answer
	amount   money.Amount // taken by a refund, available to a call that was refused, or the balance
	reserved money.Amount // of a read
}

// wallets is the specification for porcupine.
var wallets = porcupine.Model{
	Init: func() any { return walletState{} },
	Step: func(state, input, output any) (bool, any) {
		s, op, out := state.(walletState), input.(walletOp), output.(walletResult)
		available := s.balance - s.reserved()
		fits := true
		switch op.do {
		case "top up":
			s.balance += op.amount
		case "refund":
			fits = out.amount == min(op.amount, available)
			s.balance -= out.amount
		case "read":
			fits = out.amount == s.balance && out.reserved == s.reserved()
		case "reserve":
			switch out.told {
			case failed:
				return out.amount == available && available < op.amount, s
			case done:
				fits = available >= op.amount
			}
			s.held[op.call] = op.amount
		case "charge", "release":
			fits = s.held[op.call] >= op.amount && s.held[op.call] > 0
			s.held[op.call] = 0
			s.balance -= op.amount
		}
		return fits, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// walletHistory runs clients of three nodes that stop, lose answers, end and join anew, and records what
// the clients see.
type walletHistory struct {
	*cluster
	clock atomic.Int64 // orders the beginnings and ends of operations

	mu         sync.Mutex
	present    [3]*clusterNode
	operations map[string][]porcupine.Operation // by user
	unresolved []func(r storage.Reader) error   // adds operations whose outcome only the store knows
	callsOf    map[string]int
}

// add records an operation that began at a time of the clock and ends now.
func (h *walletHistory) add(user string, began int64, op walletOp, out walletResult) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations[user] = append(h.operations[user], porcupine.Operation{Input: op, Call: began, Output: out, Return: h.clock.Add(1)})
}

// later adds operations at the end, when the store knows whether they have happened.
func (h *walletHistory) later(fn func(r storage.Reader) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unresolved = append(h.unresolved, fn)
}

func (h *walletHistory) node(i int) *clusterNode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.present[i]
}

// taken returns the amount that a transfer has added to the wallet of its user.
func taken(r storage.Reader, id journal.ID) (sum money.Amount, found bool, err error) {
	x, found, err := journal.ReadTransfer(r, id)
	for _, leg := range x.Legs {
		if leg.Account == journal.Wallet(x.User) {
			sum += leg.Amount
		}
	}
	return sum, found, err
}

func (h *walletHistory) topUp(n *clusterNode, user string, amount money.Amount) {
	x := journal.Transfer{ID: journal.IDOf("top up", fmt.Sprint(h.ids.Add(1))), Kind: journal.Credit, User: user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), amount)}
	began, op := h.clock.Add(1), walletOp{do: "top up", amount: amount}
	switch told := answerOf(n.Update(background, user, nil, booking(n.store, x))); told {
	case done:
		h.add(user, began, op, walletResult{told: done})
	case nothing:
		h.later(func(r storage.Reader) error {
			_, found, err := taken(r, x.ID)
			if found {
				h.add(user, began, op, walletResult{})
			}
			return err
		})
	}
}

func (h *walletHistory) refund(n *clusterNode, user string, amount money.Amount) {
	x := journal.Transfer{ID: journal.IDOf("refund", fmt.Sprint(h.ids.Add(1))), Kind: journal.Refund, User: user}
	began, op := h.clock.Add(1), walletOp{do: "refund", amount: amount}
	r, err := n.ReserveUpTo(background, user, amount)
	if err != nil {
		return
	}
	err = n.Update(background, user, r, func(t *Txn) error {
		if err := r.Confirm(t); err != nil || r.Amount() == 0 {
			return err
		}
		x.Legs = journal.LegsBetween(journal.Wallet(user), journal.Paid("stripe"), r.Amount())
		return booking(n.store, x)(t)
	})
	switch answerOf(err) {
	case done:
		h.add(user, began, op, walletResult{told: done, amount: r.Amount()})
	case nothing:
		h.later(func(r storage.Reader) error {
			by, found, err := taken(r, x.ID)
			if found {
				h.add(user, began, op, walletResult{amount: -by})
			}
			return err
		})
	}
}

func (h *walletHistory) read(user string, read func() (walletResult, error)) {
	began := h.clock.Add(1)
	if out, err := read(); err == nil {
		h.add(user, began, walletOp{do: "read"}, out)
	}
}

func (n *clusterNode) funds(user string) func() (walletResult, error) {
	return func() (walletResult, error) {
		f, err := n.Funds(background, user)
		return walletResult{amount: f.Wallet.Balance, reserved: f.Wallet.Reserved}, err
	}
}

// makeCall reserves amount, and then charges cost. It returns when the charge is durable or the node has
// ended.
func (h *walletHistory) makeCall(n *clusterNode, user string, amount, cost money.Amount, takes time.Duration) {
	h.mu.Lock()
	i := h.callsOf[user]
	h.callsOf[user]++
	h.mu.Unlock()
	epoch, began, op := n.store.Epoch(), h.clock.Add(1), walletOp{do: "reserve", call: i, amount: amount}
	r, err := n.Reserve(background, Payer{User: user}, amount)
	short, _ := errors.AsType[*Shortfall](err)
	switch told := answerOf(err); {
	case short != nil:
		h.add(user, began, op, walletResult{told: failed, amount: short.Available})
		return
	case told == failed:
		return
	case told == nothing: // if it has happened, the end of the epoch releases it
		h.later(func(storage.Reader) error {
			h.add(user, began, op, walletResult{})
			h.add(user, began, walletOp{do: "release", call: i}, walletResult{})
			return nil
		})
		return
	}
	h.add(user, began, op, walletResult{told: done})
	time.Sleep(takes)

	began = h.clock.Add(1)
	call := h.call(user, usage.Complete)
	r.Settle(call, cost, true)
	charge := func(r storage.Reader) (charged bool, err error) {
		record, charged, err := journal.ReadCall(r, call.StoreKey(journal.CallPrefix))
		if charged {
			h.add(user, began, walletOp{do: "charge", call: i, amount: record.Cost}, walletResult{})
		}
		return charged, err
	}
	for over := false; !over; time.Sleep(5 * time.Millisecond) {
		err := h.open().View(background, func(r storage.Reader) (err error) {
			if over, err = charge(r); err != nil || over {
				return err
			}
			over, err = storage.HasEnded(r, epoch)
			if over {
				h.later(func(r storage.Reader) error {
					charged, err := charge(r)
					if !charged {
						h.add(user, began, walletOp{do: "release", call: i}, walletResult{})
					}
					return err
				})
			}
			return err
		})
		if err != nil {
			h.report(err)
			return
		}
	}
}

// client makes operations of a user at a node.
func (h *walletHistory) client(user string, node int, random *rand.Rand) {
	for range 12 {
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		n, amount := h.node(node), money.Amount(1+random.IntN(20))
		switch random.IntN(8) {
		case 0, 1:
			h.topUp(n, user, amount)
		case 2:
			h.refund(n, user, amount/2)
		case 3, 4, 5:
			h.makeCall(n, user, amount, money.Amount(random.IntN(int(amount)+1)), time.Duration(random.IntN(400))*time.Millisecond)
		default:
			h.read(user, n.funds(user))
		}
	}
}

// harm harms nodes one after another until the clients have ended.
func (h *walletHistory) harm(random *rand.Rand, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(time.Duration(random.IntN(300)) * time.Millisecond):
		}
		i := random.IntN(len(h.present))
		n, lasts := h.present[i], time.Duration(2000+random.IntN(6000))*time.Millisecond
		switch random.IntN(6) {
		case 0:
			n.line.Stop(true)
			time.Sleep(lasts)
			n.line.Stop(false)
		case 1:
			n.line.Cut(true)
			time.Sleep(lasts)
			n.line.Cut(false)
		case 2:
			h.replace(i)
		default:
			n.faulty.Plan(storagetest.UnknownCommitted, storagetest.UnknownLost, storagetest.UnknownCommitted)
		}
		if n.store.Err() != nil {
			h.replace(i)
		}
	}
}

// replace kills a process and starts another one.
func (h *walletHistory) replace(i int) {
	n := h.present[i]
	n.line.Cut(true)
	n.kill()
	fresh := h.start(Options{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.present[i] = fresh
}

// runWalletHistory returns the operations by user.
func runWalletHistory(t *testing.T, broken func(storage.Engine) storage.Engine, seed uint64) map[string][]porcupine.Operation {
	t.Helper()
	h := &walletHistory{operations: map[string][]porcupine.Operation{}, callsOf: map[string]int{}}
	synctest.Test(t, func(t *testing.T) {
		h.cluster = startCluster(t, 0, Options{})
		h.broken, h.latency = broken, 2*time.Millisecond
		h.damaged.Store(true) // porcupine alone judges
		defer h.stop()
		for i := range h.present {
			h.present[i] = h.start(Options{})
		}
		time.Sleep(time.Second)
		var clients, harm sync.WaitGroup
		for i, user := range []string{"ann", "ann", "ann", "bob", "bob", "bob"} {
			clients.Go(func() { h.client(user, i%3, rand.New(rand.NewPCG(seed, uint64(i)))) })
		}
		ended := make(chan struct{})
		harm.Go(func() { h.harm(rand.New(rand.NewPCG(seed, 99)), ended) })
		clients.Wait()
		close(ended)
		harm.Wait()
		time.Sleep(10 * time.Second) // all epochs without a node are cleared up
		err := h.open().View(background, func(r storage.Reader) error {
			for _, resolve := range h.unresolved {
				if err := resolve(r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, user := range clusterUsers {
			s := h.wallet(user)
			h.read(user, func() (walletResult, error) { return walletResult{amount: s.Balance, reserved: s.Reserved}, nil })
		}
	})
	return h.operations
}

// checkHistories returns the users whose history has no order that explains it.
func checkHistories(operations map[string][]porcupine.Operation) error {
	var bad []string
	for user, ops := range operations {
		if result := porcupine.CheckOperationsTimeout(wallets, ops, 20*time.Second); result != porcupine.Ok {
			bad = append(bad, fmt.Sprintf("the %d operations on the wallet of %s: %v", len(ops), user, result))
		}
	}
	if bad == nil {
		return nil
	}
	return errors.New(strings.Join(bad, "\n"))
}

// TestWalletsOfThreeNodesAreLinearizable searches for an order of the operations of all clients that
// explains what each has seen.
func TestWalletsOfThreeNodesAreLinearizable(t *testing.T) {
	t.Parallel()
	count := 0
	for seed := range uint64(20) {
		operations := runWalletHistory(t, nil, seed)
		for _, ops := range operations {
			count += len(ops)
		}
		if err := checkHistories(operations); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d operations", count)
}
