package verify

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

var callDamages = []damageTest{
	{
		"a call that is missing",
		func(d damage) { d.remove(call(journal.CallPrefix, "a")) },
		[]string{
			"account u/ann/wallet: the entries and the records of calls differ by 5.00",
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by -1 calls, 0 tasks, -3 tokens in and -5 out, -5.00 charged and 0.00 uncollected",
		},
	},
	{
		"a call that has paid more than was taken",
		func(d damage) {
			d.call(call(journal.CallPrefix, "a"), func(c *journal.CallRecord) { c.Paid[0].Amount += money.Unit })
		},
		[]string{
			"call a of ann: it cost 5.00, but paid 6.00",
			"account u/ann/wallet: the entries and the records of calls differ by -1.00",
		},
	},
	{
		"a call with more uncollected than in the usage of its day",
		func(d damage) {
			d.call(call(journal.CallPrefix, "d"), func(c *journal.CallRecord) { c.Uncollected = money.Unit })
		},
		[]string{"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 0 calls, 0 tasks, 0 tokens in and 0 out, 0.00 charged and 1.00 uncollected"},
	},
	{
		"a call that was paid from a budget",
		func(d damage) {
			d.call(call(journal.CallPrefix, "a"), func(c *journal.CallRecord) { c.Paid[0].Account = underKey.Own() })
		},
		[]string{
			fmt.Sprintf("call a of ann: it has paid from %s, which holds no money", underKey),
			"account u/ann/wallet: the entries and the records of calls differ by 5.00",
		},
	},
	{
		"a call that was paid by a missing transfer",
		func(d damage) {
			d.call(call(journal.CallPrefix, "a"), func(c *journal.CallRecord) { c.Paid[0].Transfer = extra })
		},
		[]string{fmt.Sprintf("call a of ann: it has paid from u/ann/wallet by transfer %v, which is missing", extra)},
	},
	{
		"a call that was paid by a transfer of another kind",
		func(d damage) {
			d.call(call(journal.CallPrefix, "a"), func(c *journal.CallRecord) { c.Paid[0].Transfer = purchaseID })
		},
		[]string{fmt.Sprintf("call a of ann: it has paid from u/ann/wallet by transfer %v, which is a purchase", purchaseID)},
	},
	{
		"a running call that is not in the index",
		func(d damage) { d.remove(call(journal.OpenCallPrefix, "c")) },
		[]string{"call c of ann: it is running, but not in the index of running calls"},
	},
	{
		"an ended call in the index of running calls",
		func(d damage) {
			d.set(call(journal.OpenCallPrefix, "a"), nil)
			d.set(call(journal.OpenCallPrefix, "e"), nil)
		},
		[]string{
			"call e of ann: it has ended, but is in the index of running calls",
			"call a of ann: it has ended, but is in the index of running calls",
		},
	},
	{
		"an index key without a call",
		func(d damage) {
			d.set(call(journal.OpenCallPrefix, "f"), nil)
			d.set(call(journal.OpenCallPrefix, "bb"), nil)
			c := journal.Call{ID: "x", User: "eve"}
			d.set(c.StoreKey(journal.OpenCallPrefix), nil)
		},
		[]string{
			"call f of ann: it is in the index of running calls, but has no record",
			"call bb of ann: it is in the index of running calls, but has no record",
			"call x of eve: it is in the index of running calls, but has no record",
		},
	},
	{
		"a call that cannot be read",
		func(d damage) { d.set(call(journal.CallPrefix, "d"), nil) },
		[]string{
			"call d of ann: its record cannot be read: it is damaged, or belongs to another call",
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by -1 calls, 0 tasks, -3 tokens in and -5 out, 0.00 charged and 0.00 uncollected",
		},
	},
	{
		"a call record at the key of another call",
		func(d damage) { d.set(call(journal.CallPrefix, "f"), d.get(call(journal.CallPrefix, "a"))) },
		[]string{"call f of ann: its record cannot be read: it is damaged, or belongs to another call"},
	},
	{
		"usage of a day with too many calls and tokens",
		func(d damage) {
			edit(d, someday.StoreKey(), func(u *journal.Usage) { u.Calls, u.Tokens = u.Calls+1, u.Tokens.Plus(usage.Tokens{Output: 4}) })
		},
		[]string{"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by -1 calls, 0 tasks, 0 tokens in and -4 out, 0.00 charged and 0.00 uncollected"},
	},
	{
		"usage of a day with an extra task",
		func(d damage) { edit(d, someday.StoreKey(), func(u *journal.Usage) { u.Tasks++ }) },
		[]string{"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 0 calls, -1 tasks, 0 tokens in and 0 out, 0.00 charged and 0.00 uncollected"},
	},
	{
		"usage of a day with a cost that is too high",
		func(d damage) { edit(d, someday.StoreKey(), func(u *journal.Usage) { u.Cost += money.Unit }) },
		[]string{
			"user ann: the charges of calls and tasks and the usage of all days differ by -1.00",
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 0 calls, 0 tasks, 0 tokens in and 0 out, -1.00 charged and 0.00 uncollected",
		},
	},
	{
		"usage of a day that is missing",
		func(d damage) { d.remove(someday.StoreKey()) },
		[]string{
			"user ann: the charges of calls and tasks and the usage of all days differ by 18.00",
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 5 calls, 1 tasks, 15 tokens in and 25 out, 18.00 charged and 2.00 uncollected",
		},
	},
	{
		"usage of an old day with a cost that is too high",
		func(d damage) {
			u := journal.Usage{Day: "20250101", User: "ann", Key: "key_1", Model: "m", Calls: 1, Cost: money.Unit}
			d.set(u.StoreKey(), storage.EncodeRecord(u))
		},
		[]string{
			"usage ann/20250101/key_1/m: its user is not in the index of active users of the day",
			"user ann: the charges of calls and tasks and the usage of all days differ by -1.00",
		},
	},
	{
		"usage of a day that cannot be read",
		func(d damage) { d.set([]byte("usage/eve/20261120/k/m"), []byte{1, '!'}) },
		[]string{"usage eve/20261120/k/m: its record cannot be read: invalid character '!' looking for beginning of value"},
	},
	{
		"usage of a day at the key of another day",
		func(d damage) {
			d.set([]byte("usage/ann/20261120/key_1/n"), storage.EncodeRecord(someday))
		},
		[]string{"usage ann/20261120/key_1/n: its record is that of usage ann/20261120/key_1/m"},
	},
	{
		"an idempotency key that cannot be read",
		func(d damage) { d.set(idempotencyKeyOf, []byte{1}) },
		[]string{"idempotency key " + journal.IDOf("k").String() + " of ann: its record cannot be read: unexpected end of JSON input"},
	},
	{
		"an idempotency key without a result",
		func(d damage) { d.set(idempotencyKeyOf, storage.EncodeRecord(map[string]int{"time": 1})) },
		[]string{"idempotency key " + journal.IDOf("k").String() + " of ann: its record has no result"},
	},
}
