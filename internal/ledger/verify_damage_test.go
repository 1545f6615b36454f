package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/storage"
)

// damage is a transaction that harms a store, past all that keeps it whole.
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
		d.t.Fatalf("there is nothing to damage at %q: %v", key, err)
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

func (d damage) state(a Account, change func(*State)) {
	s, err := decodeState(d.get(accountKey(a)))
	if err != nil {
		d.t.Fatal(err)
	}
	change(&s)
	d.set(accountKey(a), s.encode())
}

func (d damage) entry(a Account, number uint64, change func(*Entry)) {
	key := entryKey(a, number)
	e, _, err := decodeEntry(key, d.get(key))
	if err != nil {
		d.t.Fatal(err)
	}
	change(&e)
	d.set(key, e.encode())
}

// book books a transfer with everything that belongs to it, whether or not it may
// be.
func (d damage) book(x Transfer) {
	x.Time = 1795176360000
	for i, leg := range x.Legs {
		before, err := ReadState(d, leg.Account)
		if err != nil {
			d.t.Fatal(err)
		}
		after := State{Balance: before.Balance + leg.Amount, Held: before.Held + leg.Held, Entries: before.Entries + 1}
		x.Legs[i].Number = after.Entries
		e := x.entry(leg)
		e.Number, e.After = after.Entries, after
		d.set(entryKey(leg.Account, e.Number), e.encode())
		d.set(accountKey(leg.Account), after.encode())
	}
	d.set(transferKey(x.ID), storage.EncodeRecord(x))
}

// call returns the key of one of the calls of the history.
func call(prefix, id string) []byte {
	c := Call{ID: id, User: "ann", Time: time.Date(2026, 11, 20, 12, 0, int(id[0]-'a'), 0, time.UTC).UnixMilli()}
	return c.keyUnder(prefix)
}

var (
	wallet   = Wallet("ann")
	someday  = Usage{Day: "20261120", User: "ann", Key: "key_1", Model: "m"}
	claimKey = Claim{Scope: "ann", Key: "k"}.key()
	extra    = IDOf("extra")
)

// damages are one kind of damage each, and all that Verify says of it.
var damages = []struct {
	name   string
	damage func(damage)
	want   []string
}{
	{
		"a balance that its entries do not lead to",
		func(d damage) { d.state(wallet, func(s *State) { s.Balance += money.Unit }) },
		[]string{
			"account u/ann/wallet: it has 63.00 with 10.00 held, its last entry left 62.00 with 10.00 held",
			"all accounts: the sum of their balances is 1.00, not zero: money has come from nowhere or gone",
		},
	},
	{
		"more held than the holds of an account",
		func(d damage) { d.state(wallet, func(s *State) { s.Held += money.Unit }) },
		[]string{
			"account u/ann/wallet: it has 62.00 with 11.00 held, its last entry left 62.00 with 10.00 held",
			"account u/ann/wallet: what is held differs by 1.00 from what its open holds come to",
		},
	},
	{
		"an account without a record",
		func(d damage) { d.remove(accountKey(Quota("ann", 1, time.Unix(1795176360, 0)))) },
		[]string{
			"account u/ann/quota/1/1795176360: it has entries, but no record",
			"all accounts: the sum of their balances is -12.00, not zero: money has come from nowhere or gone",
		},
	},
	{
		"an account without entries",
		func(d damage) { d.set(accountKey(Wallet("eve")), State{}.encode()) },
		[]string{"account u/eve/wallet: it has no entries"},
	},
	{
		"an account that cannot be read",
		func(d damage) { d.set(accountKey(Receivable("eve")), []byte{9}) },
		[]string{"account u/eve/receivable: an account record of 1 bytes cannot be read by this build"},
	},
	{
		"an entry that is missing",
		func(d damage) { d.remove(entryKey(wallet, 7)) },
		[]string{
			"account u/ann/wallet: entry 7 is missing",
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet is entry 7 there, which is missing", openHold),
		},
	},
	{
		"entries that are missing at the beginning",
		func(d damage) {
			d.remove(entryKey(Granted, 1))
			d.remove(entryKey(Operator, 1))
			d.remove(entryKey(Operator, 2))
		},
		[]string{
			"account s/granted: entry 1 is missing",
			"account s/operator: the entries 1 to 2 are missing",
			"transfer {credit of bob}: its leg on s/operator is entry 2 there, which is missing",
			fmt.Sprintf("transfer %v: its leg on s/granted is entry 1 there, which is missing", purchaseID),
			fmt.Sprintf("transfer %v: its leg on s/operator is entry 1 there, which is missing", creditID),
		},
	},
	{
		"an entry too many",
		func(d damage) { d.set(entryKey(wallet, 13), d.get(entryKey(wallet, 12))) },
		[]string{
			"account u/ann/wallet: entry 13 is there, but it counts only 12",
			"account u/ann/wallet: entry 12 left 62.00 with 10.00 held, entry 13 began with 82.00 with 10.00 held",
			fmt.Sprintf("account u/ann/wallet: entry 13 is of transfer %v, which has no such leg", purchaseID),
		},
	},
	{
		"an entry that does not go on where the one before it ended",
		func(d damage) { d.entry(wallet, 8, func(e *Entry) { e.After.Balance += money.Unit }) },
		[]string{
			"account u/ann/wallet: entry 8 left 89.00 with 17.00 held, entry 9 began with 88.00 with 17.00 held",
			"account u/ann/wallet: entry 7 left 88.00 with 10.00 held, entry 8 began with 89.00 with 10.00 held",
		},
	},
	{
		"a first entry that does not begin with nothing",
		func(d damage) { d.entry(Sold, 1, func(e *Entry) { e.Amount -= money.Unit }) },
		[]string{
			"account s/sold: its first entry began with 1.00",
			fmt.Sprintf("transfer %v: its leg on s/sold is 20.00, entry 1 there is 19.00", purchaseID),
		},
	},
	{
		"an entry of an unknown kind",
		func(d damage) {
			entry := slices.Clone(d.get(entryKey(wallet, 7)))
			entry[1] = 200
			d.set(entryKey(wallet, 7), entry)
		},
		[]string{"account u/ann/wallet: entry 7 cannot be read by this build"},
	},
	{
		"a key that is none of an entry",
		func(d damage) { d.set([]byte("entry/u/ann/wallet"), nil) },
		[]string{`the entries: "entry/u/ann/wallet" is not the key of one`},
	},
	{
		"a wallet that fell below zero",
		func(d damage) {
			d.book(Transfer{ID: extra, Kind: Debit, Legs: Move(Wallet("eve"), Operator, 4*money.Unit)})
			d.book(Transfer{ID: IDOf("more"), Kind: Debit, Legs: Move(Wallet("eve"), Operator, 1*money.Unit)})
			d.book(Transfer{ID: IDOf("back"), Kind: Credit, Legs: Move(Operator, Wallet("eve"), 5*money.Unit)})
		},
		[]string{"account u/eve/wallet: less than nothing is available: entry 1 left -4.00, the first of 2 that did so"},
	},
	{
		"a receivable above zero",
		func(d damage) {
			d.book(Transfer{ID: extra, Kind: Clear, Legs: Move(Operator, Receivable("bob"), 4*money.Unit)})
		},
		[]string{"account u/bob/receivable: a receivable is above zero: entry 2 left 1.00, the first of 1 that did so"},
	},
	{
		"less than nothing held",
		func(d damage) {
			d.book(Transfer{ID: extra, Kind: Dispute, Legs: []Leg{{Account: Receivable("bob"), Held: -2 * money.Unit}}})
		},
		[]string{
			"account u/bob/receivable: less than nothing is held: entry 2 left -3.00 with -2.00 held, the first of 1 that did so",
			"account u/bob/receivable: what is held differs by -2.00 from what its open holds come to",
		},
	},
	{
		"money of the house that is held",
		func(d damage) {
			d.book(Transfer{ID: extra, Kind: Dispute, Legs: []Leg{{Account: Sold, Held: 2 * money.Unit}}})
		},
		[]string{"account s/sold: 2.00 is held, and nothing of the house is ever held"},
	},
	{
		"money from nowhere",
		func(d damage) {
			d.book(Transfer{ID: extra, Kind: Credit, Legs: []Leg{{Account: wallet, Amount: money.Unit}}})
		},
		[]string{
			"all accounts: the sum of their balances is 1.00, not zero: money has come from nowhere or gone",
			fmt.Sprintf("transfer %v: the sum of its legs is 1.00, not zero", extra),
		},
	},
	{
		"a transfer that is missing",
		func(d damage) { d.remove(transferKey(creditID)) },
		[]string{
			fmt.Sprintf("account s/operator: entry 1 is of transfer %v, which is missing", creditID),
			fmt.Sprintf("account u/ann/wallet: entry 1 is of transfer %v, which is missing", creditID),
		},
	},
	{
		"a leg of another amount than its entry",
		func(d damage) {
			edit(d, transferKey(openHold), func(x *Transfer) { x.Legs[0].Held += money.Unit })
		},
		[]string{fmt.Sprintf("transfer %v: its leg on u/ann/wallet is 0.00 with 11.00 held, entry 7 there is 0.00 with 10.00 held", openHold)},
	},
	{
		"an entry of another amount than its leg",
		func(d damage) {
			edit(d, transferKey(creditID), func(x *Transfer) { x.Legs[1].Amount += money.Unit })
		},
		[]string{
			fmt.Sprintf("transfer %v: the sum of its legs is 1.00, not zero", creditID),
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet is 101.00, entry 1 there is 100.00", creditID),
		},
	},
	{
		"a leg that is missing",
		func(d damage) { edit(d, transferKey(openHold), func(x *Transfer) { x.Legs = x.Legs[:1] }) },
		[]string{fmt.Sprintf("account %s: entry 5 is of transfer %v, which has no such leg", underKey, openHold)},
	},
	{
		"two legs with one entry",
		func(d damage) {
			edit(d, transferKey(openHold), func(x *Transfer) { x.Legs = append(x.Legs, x.Legs[1]) })
		},
		[]string{fmt.Sprintf("transfer %v: two of its legs are entry 5 of %s", openHold, underKey)},
	},
	{
		"two legs whose entries are exchanged",
		func(d damage) {
			d.entry(wallet, 7, func(e *Entry) { e.Transfer = voidHold })
			d.entry(wallet, 10, func(e *Entry) { e.Transfer = openHold })
		},
		[]string{
			fmt.Sprintf("account u/ann/wallet: entry 10 is of transfer %v, which has no such leg", openHold),
			fmt.Sprintf("account u/ann/wallet: entry 7 is of transfer %v, which has no such leg", voidHold),
		},
	},
	{
		"a transfer of another kind than its entries",
		func(d damage) { edit(d, transferKey(creditID), func(x *Transfer) { x.Kind = TopUp }) },
		[]string{
			fmt.Sprintf("transfer %v: it is a topup of 2026-11-20T12:00:00Z, entry 1 of s/operator is a credit of 2026-11-20T12:00:00Z", creditID),
			fmt.Sprintf("transfer %v: it is a topup of 2026-11-20T12:00:00Z, entry 1 of u/ann/wallet is a credit of 2026-11-20T12:00:00Z", creditID),
		},
	},
	{
		"a transfer of no kind",
		func(d damage) {
			d.set(transferKey(extra), storage.EncodeRecord(Transfer{ID: extra, Kind: "gift"}))
		},
		[]string{fmt.Sprintf(`transfer %v: "gift" is no kind of transfer`, extra)},
	},
	{
		"an entry of another time than its transfer",
		func(d damage) { d.entry(Sold, 1, func(e *Entry) { e.Time = e.Time.Add(time.Hour) }) },
		[]string{fmt.Sprintf("transfer %v: it is a purchase of 2026-11-20T12:06:00Z, entry 1 of s/sold is a purchase of 2026-11-20T13:06:00Z", purchaseID)},
	},
	{
		"a transfer that cannot be read",
		func(d damage) { d.set(transferKey(creditID), []byte{1, '{'}) },
		[]string{fmt.Sprintf("transfer %v: its record cannot be read: unexpected end of JSON input", creditID)},
	},
	{
		"a transfer in the place of another",
		func(d damage) { d.set(transferKey(creditID), d.get(transferKey(refundID))) },
		[]string{fmt.Sprintf("transfer %v: its record cannot be read: it says that it is %v", creditID, refundID)},
	},
	{
		"a hold that is missing",
		func(d damage) { d.remove(holdKey("ann", openHold)) },
		[]string{
			fmt.Sprintf("account %s: what is held differs by 10.00 from what its open holds come to", underKey),
			"account u/ann/wallet: what is held differs by 10.00 from what its open holds come to",
			fmt.Sprintf("transfer %v: it is a hold of hold %v of ann, which is missing", openHold, openHold),
		},
	},
	{
		"an ended hold that is missing",
		func(d damage) { d.remove(holdKey("ann", paidHold)) },
		[]string{
			fmt.Sprintf("transfer %v: it is a hold of hold %v of ann, which is missing", paidHold, paidHold),
			fmt.Sprintf("transfer %v: it is a settle of hold %v of ann, which is missing", endOf(paidHold), paidHold),
		},
	},
	{
		"a hold that is open after its end",
		func(d damage) { edit(d, holdKey("ann", paidHold), func(h *holdRecord) { h.State = Held }) },
		[]string{
			fmt.Sprintf("hold %v of ann: it is open, but transfer %v has ended it", paidHold, endOf(paidHold)),
			fmt.Sprintf("account %s: what is held differs by -7.00 from what its open holds come to", underKey),
			"account u/ann/wallet: what is held differs by -7.00 from what its open holds come to",
		},
	},
	{
		"a hold that has ended without a transfer",
		func(d damage) { edit(d, holdKey("ann", openHold), func(h *holdRecord) { h.State = Voided }) },
		[]string{
			fmt.Sprintf("hold %v of ann: it is voided, but transfer %v, which ends it, is missing", openHold, endOf(openHold)),
			fmt.Sprintf("account %s: what is held differs by 10.00 from what its open holds come to", underKey),
			"account u/ann/wallet: what is held differs by 10.00 from what its open holds come to",
		},
	},
	{
		"a hold that has ended in another way than its transfer",
		func(d damage) { edit(d, holdKey("ann", paidHold), func(h *holdRecord) { h.State = Voided }) },
		[]string{fmt.Sprintf("hold %v of ann: it is voided, but was ended by a settle", paidHold)},
	},
	{
		"a hold in no state",
		func(d damage) { edit(d, holdKey("ann", paidHold), func(h *holdRecord) { h.State = "lost" }) },
		[]string{fmt.Sprintf(`hold %v of ann: "lost" is no state of a hold`, paidHold)},
	},
	{
		"a hold that was charged something else",
		func(d damage) { edit(d, holdKey("ann", paidHold), func(h *holdRecord) { h.Charged -= money.Unit }) },
		[]string{fmt.Sprintf("hold %v of ann: it was charged 5.00, its transfer took 6.00", paidHold)},
	},
	{
		"a hold that no transfer began",
		func(d damage) {
			d.set(holdKey("ann", extra), storage.EncodeRecord(holdRecord{ID: extra, User: "ann", State: Held}))
		},
		[]string{fmt.Sprintf("hold %v of ann: its transfer %v is missing", extra, extra)},
	},
	{
		"a hold that another transfer began",
		func(d damage) {
			d.set(holdKey("ann", creditID), storage.EncodeRecord(holdRecord{ID: creditID, User: "ann", State: Held}))
		},
		[]string{fmt.Sprintf(`hold %v of ann: its transfer is a credit of "ann"`, creditID)},
	},
	{
		"a hold that cannot be read",
		func(d damage) { d.set(holdKey("ann", paidHold), []byte{2}) },
		[]string{fmt.Sprintf("hold %v of ann: its record cannot be read: storage: record version 2, this build reads 1", paidHold)},
	},
	{
		"a hold in the place of another",
		func(d damage) { d.set(holdKey("ann", paidHold), d.get(holdKey("ann", voidHold))) },
		[]string{fmt.Sprintf("hold %v of ann: its record is that of hold %v of ann", paidHold, voidHold)},
	},
	{
		"a hold that ends twice",
		func(d damage) {
			d.book(Transfer{ID: extra, Kind: Settle, User: "ann", Reference: paidHold.String(), Legs: Move(wallet, Spent, money.Unit)})
		},
		[]string{fmt.Sprintf("transfer %v: it ends hold %v, which only transfer %v may do: a hold ends once", extra, paidHold, endOf(paidHold))},
	},
	{
		"an end of no hold",
		func(d damage) {
			d.book(Transfer{ID: extra, Kind: Void, User: "ann", Reference: "x"})
		},
		[]string{fmt.Sprintf("transfer %v: it ends no hold: a transfer id has 32 hexadecimal digits, this has 1", extra)},
	},
	{
		"a call that is missing",
		func(d damage) { d.remove(call(callPrefix, "a")) },
		[]string{
			"account u/ann/wallet: what calls took from it differs by 5.00 from what their records have paid",
			"usage ann/20261120/key_1/m: its calls differ from it by -1 calls, -3 tokens in and -5 out, -5.00 charged and 0.00 uncollected",
		},
	},
	{
		"a call that has paid more than was taken",
		func(d damage) {
			edit(d, call(callPrefix, "a"), func(c *callRecord) { c.Paid[0].Amount += money.Unit })
		},
		[]string{
			"call a of ann: it has cost 5.00, and paid 6.00",
			"account u/ann/wallet: what calls took from it differs by -1.00 from what their records have paid",
		},
	},
	{
		"a call that has cost more than the sums of its day know",
		func(d damage) { edit(d, call(callPrefix, "d"), func(c *callRecord) { c.Lost = money.Unit }) },
		[]string{"usage ann/20261120/key_1/m: its calls differ from it by 0 calls, 0 tokens in and 0 out, 0.00 charged and 1.00 uncollected"},
	},
	{
		"a call that was paid from a budget",
		func(d damage) {
			edit(d, call(callPrefix, "a"), func(c *callRecord) { c.Paid[0].Account = underKey.own() })
		},
		[]string{
			fmt.Sprintf("call a of ann: it has paid from %s, where no money is kept", underKey),
			"account u/ann/wallet: what calls took from it differs by 5.00 from what their records have paid",
		},
	},
	{
		"a call under way that is not in the index",
		func(d damage) { d.remove(call(openPrefix, "c")) },
		[]string{"call c of ann: it is under way, but not in the index of those"},
	},
	{
		"an ended call in the index of those under way",
		func(d damage) {
			d.set(call(openPrefix, "a"), nil)
			d.set(call(openPrefix, "e"), nil)
		},
		[]string{
			"call e of ann: it has ended, but is in the index of those under way",
			"call a of ann: it has ended, but is in the index of those under way",
		},
	},
	{
		"an index without its call",
		func(d damage) {
			d.set(call(openPrefix, "f"), nil)
			d.set(call(openPrefix, "bb"), nil)
			c := Call{ID: "x", User: "eve"}
			d.set(c.keyUnder(openPrefix), nil)
		},
		[]string{
			"call f of ann: it is in the index of those under way, but has no record",
			"call bb of ann: it is in the index of those under way, but has no record",
			"call x of eve: it is in the index of those under way, but has no record",
		},
	},
	{
		"a call that cannot be read",
		func(d damage) { d.set(call(callPrefix, "d"), nil) },
		[]string{
			"call d of ann: its record cannot be read: storage: empty record",
			"usage ann/20261120/key_1/m: its calls differ from it by -1 calls, -3 tokens in and -5 out, 0.00 charged and 0.00 uncollected",
		},
	},
	{
		"a call in the place of another",
		func(d damage) { d.set(call(callPrefix, "f"), d.get(call(callPrefix, "a"))) },
		[]string{"call f of ann: its record is that of call a of ann at 2026-11-20T12:00:00Z"},
	},
	{
		"sums of a day that are too high",
		func(d damage) {
			edit(d, someday.key(), func(u *Usage) { u.Calls, u.Tokens = u.Calls+1, u.Tokens.Plus(usage.Tokens{Output: 4}) })
		},
		[]string{"usage ann/20261120/key_1/m: its calls differ from it by -1 calls, 0 tokens in and -4 out, 0.00 charged and 0.00 uncollected"},
	},
	{
		"sums of a day that are missing",
		func(d damage) { d.remove(someday.key()) },
		[]string{
			"user ann: what calls took differs by 12.00 from what the usage of all days comes to",
			"usage ann/20261120/key_1/m: its calls differ from it by 5 calls, 15 tokens in and 25 out, 12.00 charged and 2.00 uncollected",
		},
	},
	{
		"sums of a day long ago that are too high",
		func(d damage) {
			u := Usage{Day: "20250101", User: "ann", Key: "key_1", Model: "m", Calls: 1, Cost: money.Unit}
			d.set(u.key(), storage.EncodeRecord(u))
		},
		[]string{"user ann: what calls took differs by -1.00 from what the usage of all days comes to"},
	},
	{
		"sums of a day that cannot be read",
		func(d damage) { d.set([]byte("usage/eve/20261120/k/m"), []byte{1, '!'}) },
		[]string{"usage eve/20261120/k/m: its record cannot be read: invalid character '!' looking for beginning of value"},
	},
	{
		"sums of a day in the place of others",
		func(d damage) {
			d.set([]byte("usage/ann/20261120/key_1/n"), storage.EncodeRecord(someday))
		},
		[]string{"usage ann/20261120/key_1/n: its record is that of usage ann/20261120/key_1/m"},
	},
	{
		"a claim that cannot be read",
		func(d damage) { d.set(claimKey, []byte{1}) },
		[]string{"claim " + IDOf("k").String() + " of ann: its record cannot be read: unexpected end of JSON input"},
	},
	{
		"a claim without an answer",
		func(d damage) { d.set(claimKey, storage.EncodeRecord(map[string]int{"time": 1})) },
		[]string{"claim " + IDOf("k").String() + " of ann: its record has no answer"},
	},
}

func TestVerifyNamesEachDamage(t *testing.T) {
	t.Parallel()
	for _, test := range damages {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newHistory(t)
			f.change(func(tx storage.Txn) error {
				test.damage(damage{tx, t})
				return nil
			})
			creditOfBob := f.transferOf(Wallet("bob"), 1).String()
			got, _ := f.verify()
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], creditOfBob, "{credit of bob}")
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("Verify said:\n%s\nnot:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// transferOf returns the transfer of an entry.
func (f *fixture) transferOf(a Account, number uint64) (id ID) {
	f.t.Helper()
	err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		return ScanEntries(r, a, 0, func(e Entry) bool {
			id = e.Transfer
			return e.Number > number
		})
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}
