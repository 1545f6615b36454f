package verify

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// damage is a transaction that damages a store. It bypasses the ledger.
type damage struct {
	storage.Txn
	t *testing.T
}

func (d damage) set(key, val []byte) {
	if err := d.Set(key, val, time.Time{}); err != nil {
		d.t.Fatal(err)
	}
}

func (d damage) get(key []byte) []byte {
	val, err := d.Get(key)
	if err != nil || val == nil {
		d.t.Fatalf("no record at %q: %v", key, err)
	}
	return val
}

func (d damage) remove(key []byte) {
	d.get(key)
	if err := d.Delete(key); err != nil {
		d.t.Fatal(err)
	}
}

// edit changes a record.
func edit[T any](d damage, key []byte, change func(*T)) {
	var record T
	if err := storage.DecodeRecord(d.get(key), &record); err != nil {
		d.t.Fatal(err)
	}
	change(&record)
	d.set(key, storage.EncodeRecord(record))
}

func (d damage) transfer(id journal.ID, change func(*journal.Transfer)) {
	x := d.read(id)
	change(&x)
	d.set(journal.TransferKey(id), x.Encode(journal.TransferKey(id)))
}

// read returns a transfer.
func (d damage) read(id journal.ID) journal.Transfer {
	key := journal.TransferKey(id)
	x, err := journal.DecodeTransfer(key, d.get(key))
	if err != nil {
		d.t.Fatal(err)
	}
	return x
}

// again writes a copy of a transfer with another id.
func (d damage) again(x journal.Transfer, id journal.ID) {
	x.ID = id
	d.set(journal.TransferKey(id), x.Encode(journal.TransferKey(id)))
}

func (d damage) call(key []byte, change func(*journal.CallRecord)) {
	c, err := journal.DecodeCall(key, d.get(key))
	if err != nil {
		d.t.Fatal(err)
	}
	change(&c)
	d.set(key, c.Encode(key))
}

func (d damage) state(a journal.Account, change func(*journal.State)) {
	s, err := journal.DecodeState(d.get(journal.AccountKey(a)))
	if err != nil {
		d.t.Fatal(err)
	}
	change(&s)
	d.set(journal.AccountKey(a), s.Encode())
}

func (d damage) entry(a journal.Account, number uint64, change func(*journal.Entry)) {
	key := journal.EntryKey(a, number)
	e, _, err := journal.DecodeEntry(key, d.get(key))
	if err != nil {
		d.t.Fatal(err)
	}
	change(&e)
	d.set(key, e.Encode())
}

// book books a transfer with its entries and states, and checks nothing.
func (d damage) book(x journal.Transfer) {
	x.Time = 1795176360000
	x.Legs = slices.Clone(x.Legs) // the table of tests stays unchanged
	for i := range x.Legs {
		x.Legs[i].Account = x.Legs[i].Account.On(time.UnixMilli(x.Time))
		leg := x.Legs[i]
		before, err := journal.ReadState(d, leg.Account)
		if err != nil {
			d.t.Fatal(err)
		}
		after := journal.State{Balance: before.Balance + leg.Amount, Held: before.Held + leg.Held, Entries: before.Entries + 1}
		x.Legs[i].Number = after.Entries
		if !leg.Account.System() {
			e := x.Entry(leg)
			e.Number, e.After = after.Entries, after
			d.set(journal.EntryKey(leg.Account, e.Number), e.Encode())
		}
		d.set(journal.AccountKey(leg.Account), after.Encode())
	}
	d.set(journal.TransferKey(x.ID), x.Encode(journal.TransferKey(x.ID)))
}

// call returns the key of one of the calls of the history.
func call(prefix, id string) []byte {
	c := journal.Call{ID: id, User: "ann", Time: time.Date(2026, 11, 20, 12, 0, int(id[0]-'a'), 0, time.UTC).UnixMilli()}
	return c.StoreKey(prefix)
}

var (
	wallet           = journal.Wallet("ann")
	someday          = journal.Usage{Day: "20261120", User: "ann", Key: "key_1", Model: "m"}
	idempotencyKeyOf = storage.Key("idem", "ann", journal.IDOf("k").String())
	extra            = journal.IDOf("extra")
)

// damageTest is one kind of damage, and all problems that Verify reports.
type damageTest struct {
	name   string
	damage func(damage)
	want   []string
}

func TestVerifyReportsEachDamage(t *testing.T) {
	t.Parallel()
	for _, test := range slices.Concat(accountDamages, systemDamages, transferDamages, shapeDamages, callDamages) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newHistory(t)
			creditOfBob := f.transferOf(journal.Wallet("bob"), 1).String()
			f.change(func(tx storage.Txn) error {
				test.damage(damage{tx, t})
				return nil
			})
			got, _ := f.verify()
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], creditOfBob, "{credit of bob}")
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("Verify reported:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// transferOf returns the transfer of an entry.
func (f *fixture) transferOf(a journal.Account, number uint64) (id journal.ID) {
	f.t.Helper()
	err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		return journal.ScanEntries(r, a, 0, func(e journal.Entry) bool {
			id = e.Transfer
			return e.Number > number
		})
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}
