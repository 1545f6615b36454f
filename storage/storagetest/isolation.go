package storagetest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

func snapshot(t *testing.T, e transactor) {
	set(t, e, "a", "1", "b", "2")
	view(t, e, func(r storage.Reader) error {
		// A view does not block a writer, and a writer does not change a view.
		update(t, e, func(txn storage.Txn) error {
			if err := txn.Set([]byte("a"), []byte("11"), never); err != nil {
				return err
			}
			return txn.Delete([]byte("b"))
		})
		set(t, e, "c", "3")
		if err := holds(r, nil, nil, "a", "1", "b", "2"); err != nil {
			return err
		}
		expect(t, e, "a", "11", "c", "3") // a later view
		return lacks(r, "c")
	})
}

func uncommittedUnseen(t *testing.T, e transactor) {
	set(t, e, "a", "1")
	update(t, e, func(txn storage.Txn) error {
		if err := txn.Set([]byte("a"), []byte("2"), never); err != nil {
			return err
		}
		expect(t, e, "a", "1")
		return nil
	})
	expect(t, e, "a", "2")
}

// concurrently calls run n times concurrently and waits for all calls.
func concurrently(n int, run func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { run(i) })
	}
	wg.Wait()
}

// pause yields between the reads and the writes of a transaction, so that an
// engine without isolation is detected even if its transactions are short.
func pause() {
	for range 3 {
		runtime.Gosched()
	}
}

// number returns a counter; an absent one is 0.
func number(r storage.Reader, key string) (uint64, error) {
	val, err := r.Get([]byte(key))
	if err != nil || val == nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(val), nil
}

// setNumber writes a counter.
func setNumber(txn storage.Txn, key string, n uint64) error {
	return txn.Set([]byte(key), binary.BigEndian.AppendUint64(nil, n), never)
}

func lostUpdate(t *testing.T, e transactor) {
	const writers, rounds = 8, 25
	concurrently(writers, func(int) {
		for range rounds {
			err := retrying(t.Context(), e, func(txn storage.Txn) error {
				n, err := number(txn, "counter")
				if err != nil {
					return err
				}
				pause()
				return setNumber(txn, "counter", n+1)
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	view(t, e, func(r storage.Reader) error {
		n, err := number(r, "counter")
		if err == nil && n != writers*rounds {
			err = fmt.Errorf("the counter is %d after %d increments", n, writers*rounds)
		}
		return err
	})
}

// writeSkew tests the classical anomaly. Two transactions turn one key each off
// concurrently, each only if the other key is on. So one key must stay on.
func writeSkew(t *testing.T, e transactor) {
	for range 25 {
		set(t, e, "alice", "on", "bob", "on")
		concurrently(2, func(i int) {
			me, other := "alice", "bob"
			if i == 1 {
				me, other = other, me
			}
			err := retrying(t.Context(), e, func(txn storage.Txn) error {
				if has(txn, other, "on") != nil {
					return nil
				}
				pause()
				return txn.Set([]byte(me), []byte("off"), never)
			})
			if err != nil {
				t.Error(err)
			}
		})
		view(t, e, func(r storage.Reader) error {
			if has(r, "alice", "off") == nil && has(r, "bob", "off") == nil {
				return fmt.Errorf("both keys are off")
			}
			return nil
		})
	}
}

// phantoms runs many transactions that book a slot if a scan finds a free one.
// Each writes its own keys, so only the scans conflict.
func phantoms(t *testing.T, e transactor) {
	for round := range 10 {
		prefix := fmt.Sprintf("round%02d/", round)
		lo, hi := []byte(prefix), []byte(prefix+"\xff")
		const slots, callers = 3, 8
		concurrently(callers, func(i int) {
			err := retrying(t.Context(), e, func(txn storage.Txn) error {
				booked := 0
				if err := txn.Scan(lo, hi, func(_, _ []byte) bool { booked++; return true }); err != nil {
					return err
				}
				if booked >= slots {
					return nil
				}
				pause()
				return txn.Set(fmt.Appendf(nil, "%s%d", prefix, i), nil, never)
			})
			if err != nil {
				t.Error(err)
			}
		})
		booked := 0
		view(t, e, func(r storage.Reader) error {
			return r.Scan(lo, hi, func(_, _ []byte) bool { booked++; return true })
		})
		if booked != slots {
			t.Fatalf("%d bookings of %d slots", booked, slots)
		}
	}
}

const (
	accounts = 10
	opening  = 100
)

// openAccounts sets the opening balance of every account.
func openAccounts(t *testing.T, e transactor) {
	t.Helper()
	update(t, e, func(txn storage.Txn) error {
		for i := range accounts {
			if err := setNumber(txn, fmt.Sprintf("account/%d", i), opening); err != nil {
				return err
			}
		}
		return nil
	})
}

// transfer moves a random amount between two random accounts if the balance
// allows it.
func transfer(txn storage.Txn, random *rand.Rand) error {
	from, to := random.IntN(accounts), random.IntN(accounts-1)
	if to >= from {
		to++
	}
	source, target := fmt.Sprintf("account/%d", from), fmt.Sprintf("account/%d", to)
	have, err := number(txn, source)
	if err != nil {
		return err
	}
	amount := random.Uint64N(opening)
	if have < amount {
		return nil
	}
	other, err := number(txn, target)
	if err != nil {
		return err
	}
	pause()
	if err := setNumber(txn, source, have-amount); err != nil {
		return err
	}
	return setNumber(txn, target, other+amount)
}

// conserved returns an error unless the sum of the accounts is unchanged.
func conserved(r storage.Reader) error {
	sum, count := uint64(0), 0
	err := r.Scan([]byte("account/"), []byte("account0"), func(_, val []byte) bool {
		sum += binary.BigEndian.Uint64(val)
		count++
		return true
	})
	if err == nil && (sum != accounts*opening || count != accounts) {
		err = fmt.Errorf("%d accounts hold %d, want %d with %d", count, sum, accounts, accounts*opening)
	}
	return err
}

func transfers(t *testing.T, e transactor) {
	const writers, rounds = 6, 40
	openAccounts(t, e)
	concurrently(writers, func(i int) {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		for range rounds {
			err := retrying(t.Context(), e, func(txn storage.Txn) error { return transfer(txn, random) })
			if err != nil {
				t.Error(err)
			}
			if err := e.View(t.Context(), conserved); err != nil {
				t.Error(err)
			}
		}
	})
}
