package verify

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

var transferDamages = []damageTest{
	{
		"a transfer that is missing",
		func(d damage) { d.remove(journal.TransferKey(creditID)) },
		[]string{
			"account s/operator/20261120: its count of legs is 2, transfers have 1",
			"account s/operator/20261120: it has -105.00, the sum of its legs is -5.00",
			fmt.Sprintf("account u/ann/wallet: entry 1 is of transfer %v, which is missing", creditID),
		},
	},
	{
		"a leg whose amount differs from its entry",
		func(d damage) {
			d.transfer(openHold, func(x *journal.Transfer) { x.Legs[0].Held += money.Unit })
		},
		[]string{
			fmt.Sprintf("transfer %v: it sets 10.00 aside under %s, but 11.00 in sources", openHold, underKey),
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet is 0.00 with 11.00 held, but entry 7 is 0.00 with 10.00 held", openHold),
		},
	},
	{
		"a leg whose amount differs from its entry and from the other leg",
		func(d damage) {
			d.transfer(creditID, func(x *journal.Transfer) { x.Legs[1].Amount += money.Unit })
		},
		[]string{
			fmt.Sprintf("transfer %v: the sum of its legs is 1.00, not zero", creditID),
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet is 101.00, but entry 1 is 100.00", creditID),
		},
	},
	{
		"a leg that is missing",
		func(d damage) { d.transfer(openHold, func(x *journal.Transfer) { x.Legs = x.Legs[:1] }) },
		[]string{fmt.Sprintf("account %s: entry 5 is of transfer %v, which has no such leg", underKey, openHold)},
	},
	{
		"two legs with one entry",
		func(d damage) {
			d.transfer(openHold, func(x *journal.Transfer) { x.Legs = append(x.Legs, x.Legs[1]) })
		},
		[]string{fmt.Sprintf("transfer %v: two of its legs name entry 5 of %s", openHold, underKey)},
	},
	{
		"two legs whose entries are exchanged",
		func(d damage) {
			d.entry(wallet, 7, func(e *journal.Entry) { e.Transfer = voidHold })
			d.entry(wallet, 10, func(e *journal.Entry) { e.Transfer = openHold })
		},
		[]string{
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet names entry 7, which is of transfer %v", openHold, voidHold),
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet names entry 10, which is of transfer %v", voidHold, openHold),
			fmt.Sprintf("account u/ann/wallet: entry 10 is of transfer %v, which has no such leg", openHold),
			fmt.Sprintf("account u/ann/wallet: entry 7 is of transfer %v, which has no such leg", voidHold),
		},
	},
	{
		"a transfer whose kind differs from its entries",
		func(d damage) { d.transfer(creditID, func(x *journal.Transfer) { x.Kind = journal.TopUp }) },
		[]string{
			fmt.Sprintf("transfer %v: a topup must not change s/operator/20261120 by -100.00", creditID),
			fmt.Sprintf("transfer %v: it is a topup of 2026-11-20T12:00:00Z, entry 1 of u/ann/wallet is a credit of 2026-11-20T12:00:00Z", creditID),
		},
	},
	{
		"a transfer of an unknown kind",
		func(d damage) {
			key, record := journal.TransferKey(extra), []byte{1, 99}
			d.set(key, binary.BigEndian.AppendUint32(record, crc32.Checksum(slices.Concat(key, record), crc32.MakeTable(crc32.Castagnoli))))
		},
		[]string{fmt.Sprintf("transfer %v: its record cannot be read: its layout is not known to this build", extra)},
	},
	{
		"an entry whose time differs from its transfer",
		func(d damage) { d.entry(usedQuota, 1, func(e *journal.Entry) { e.Time = e.Time.Add(time.Hour) }) },
		[]string{fmt.Sprintf("transfer %v: it is a purchase of 2026-11-20T12:06:00Z, entry 1 of %s is a purchase of 2026-11-20T13:06:00Z", purchaseID, usedQuota)},
	},
	{
		"a transfer that cannot be read",
		func(d damage) { d.set(journal.TransferKey(creditID), []byte{1, '{'}) },
		[]string{
			fmt.Sprintf("transfer %v: its record cannot be read: it is damaged, or belongs to another transfer", creditID),
			"account s/operator/20261120: its count of legs is 2, transfers have 1",
			"account s/operator/20261120: it has -105.00, the sum of its legs is -5.00",
		},
	},
	{
		"a transfer record at the key of another transfer",
		func(d damage) { d.set(journal.TransferKey(creditID), d.get(journal.TransferKey(refundID))) },
		[]string{
			fmt.Sprintf("transfer %v: its record cannot be read: it is damaged, or belongs to another transfer", creditID),
			"account s/operator/20261120: its count of legs is 2, transfers have 1",
			"account s/operator/20261120: it has -105.00, the sum of its legs is -5.00",
		},
	},
	{
		"a duplicate transfer",
		func(d damage) {
			d.again(d.read(creditID), extra)
		},
		[]string{
			"account s/operator/20261120: its count of legs is 2, transfers have 3",
			"account s/operator/20261120: it has -105.00, the sum of its legs is -205.00",
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet names entry 1, which is of transfer %v", extra, creditID),
		},
	},
	{
		"a duplicate transfer between accounts of one user",
		func(d damage) {
			d.again(d.read(openHold), extra)
		},
		[]string{
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet names entry 7, which is of transfer %v", extra, openHold),
			fmt.Sprintf("transfer %v: its leg on %s names entry 5, which is of transfer %v", extra, underKey, openHold),
		},
	},
	{
		"a hold without the transfer that began it",
		func(d damage) { d.remove(journal.TransferKey(paidHold)) },
		[]string{
			fmt.Sprintf("transfer %v: it ends hold %v, and transfer %v, which began it, is missing", journal.EndOf(paidHold), paidHold, paidHold),
			fmt.Sprintf("account %s: entry 6 is of transfer %v, which is missing", underKey, paidHold),
			fmt.Sprintf("account u/ann/wallet: entry 8 is of transfer %v, which is missing", paidHold),
		},
	},
	{
		"a hold that a transfer of another user began",
		func(d damage) { d.transfer(paidHold, func(x *journal.Transfer) { x.User = "bob" }) },
		[]string{
			fmt.Sprintf(`transfer %v: it is of user "bob", but changes u/ann/wallet`, paidHold),
			fmt.Sprintf(`transfer %v: it is of user "bob", but changes %s`, paidHold, underKey),
			fmt.Sprintf(`transfer %v: it ends hold %v of "ann", which is a hold of "bob"`, journal.EndOf(paidHold), paidHold),
		},
	},
	{
		"a hold that is only partly released",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Hold, User: "ann", Legs: []journal.Leg{{Account: wallet, Held: 2 * money.Unit}}})
			d.book(journal.Transfer{ID: journal.EndOf(extra), Kind: journal.Void, User: "ann", Reference: extra.String(), Legs: []journal.Leg{{Account: wallet, Held: -money.Unit}}})
			d.set(journal.HoldKey("ann", extra), storage.EncodeRecord(journal.HoldRecord{ID: extra, User: "ann", State: journal.Voided}))
		},
		[]string{fmt.Sprintf("transfer %v: the hold that it ends leaves 1.00 held on u/ann/wallet", journal.EndOf(extra))},
	},
	{
		"an ended hold that is missing",
		func(d damage) { d.remove(journal.HoldKey("ann", paidHold)) },
		[]string{
			"user ann: the charges of calls and tasks and the usage of all days differ by -6.00",
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 0 calls, -1 tasks, 0 tokens in and 0 out, -6.00 charged and 0.00 uncollected",
			fmt.Sprintf("transfer %v: it is a settle of hold %v of ann, which is missing", journal.EndOf(paidHold), paidHold),
		},
	},
	{
		"an ended hold with the state held",
		func(d damage) {
			edit(d, journal.HoldKey("ann", paidHold), func(h *journal.HoldRecord) { h.State = journal.Held })
		},
		[]string{
			fmt.Sprintf(`hold %v of ann: "held" is not a state of an ended hold`, paidHold),
		},
	},
	{
		"a hold that has ended without a transfer",
		func(d damage) {
			d.set(journal.HoldKey("ann", openHold), storage.EncodeRecord(journal.HoldRecord{ID: openHold, User: "ann", State: journal.Voided}))
		},
		[]string{fmt.Sprintf("hold %v of ann: it is voided, but transfer %v, which ends it, is missing", openHold, journal.EndOf(openHold))},
	},
	{
		"a hold whose state differs from its transfer",
		func(d damage) {
			edit(d, journal.HoldKey("ann", paidHold), func(h *journal.HoldRecord) { h.State = journal.Voided })
		},
		[]string{fmt.Sprintf("hold %v of ann: it is voided, but was ended by a settle", paidHold)},
	},
	{
		"a hold with an unknown state",
		func(d damage) {
			edit(d, journal.HoldKey("ann", paidHold), func(h *journal.HoldRecord) { h.State = "lost" })
		},
		[]string{fmt.Sprintf(`hold %v of ann: "lost" is not a state of an ended hold`, paidHold)},
	},
	{
		"a hold whose charge differs from its transfer",
		func(d damage) {
			edit(d, journal.HoldKey("ann", paidHold), func(h *journal.HoldRecord) { h.Charged -= money.Unit })
		},
		[]string{
			fmt.Sprintf("hold %v of ann: it was charged 5.00, its transfer took 6.00", paidHold),
			"user ann: the charges of calls and tasks and the usage of all days differ by -1.00",
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 0 calls, 0 tasks, 0 tokens in and 0 out, -1.00 charged and 0.00 uncollected",
		},
	},
	{
		"a hold that counts as a task of another model",
		func(d damage) {
			edit(d, journal.HoldKey("ann", paidHold), func(h *journal.HoldRecord) { h.Model = "n" })
		},
		[]string{
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 0 calls, -1 tasks, 0 tokens in and 0 out, -6.00 charged and 0.00 uncollected",
			"usage ann/20261120/key_1/n: the calls and tasks of the day differ from it by 0 calls, 1 tasks, 0 tokens in and 0 out, 6.00 charged and 0.00 uncollected",
		},
	},
	{
		"a hold that does not count as a task",
		func(d damage) { edit(d, journal.HoldKey("ann", paidHold), func(h *journal.HoldRecord) { h.Day = "" }) },
		[]string{
			"user ann: the charges of calls and tasks and the usage of all days differ by -6.00",
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 0 calls, -1 tasks, 0 tokens in and 0 out, -6.00 charged and 0.00 uncollected",
		},
	},
	{
		"a hold that was settled for more than it set aside",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Hold, User: "ann", Legs: []journal.Leg{{Account: wallet, Held: 2 * money.Unit}}})
			d.book(journal.Transfer{ID: journal.EndOf(extra), Kind: journal.Settle, User: "ann", Reference: extra.String(), Legs: []journal.Leg{
				{Account: wallet, Amount: -3 * money.Unit, Held: -2 * money.Unit}, {Account: journal.Spent, Amount: 3 * money.Unit},
			}})
			d.set(journal.HoldKey("ann", extra), storage.EncodeRecord(journal.HoldRecord{ID: extra, User: "ann", State: journal.Settled, Charged: 3 * money.Unit}))
		},
		[]string{fmt.Sprintf("transfer %v: it takes 3.00 from u/ann/wallet, but releases 2.00", journal.EndOf(extra))},
	},
	{
		"a hold that has ended twice, of two users",
		func(d damage) {
			d.set(journal.HoldKey("bob", voidHold), storage.EncodeRecord(journal.HoldRecord{ID: voidHold, User: "bob", State: journal.Voided}))
		},
		[]string{fmt.Sprintf(`hold %v of bob: it was ended by a void of "ann"`, voidHold)},
	},
	{
		"a hold on a budget without a source",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Hold, User: "ann", Legs: []journal.Leg{{Account: underKey, Held: 5 * money.Unit}}})
		},
		[]string{
			fmt.Sprintf("transfer %v: it sets nothing aside", extra),
			fmt.Sprintf("transfer %v: it sets 5.00 aside under %s, but 0.00 in sources", extra, underKey),
		},
	},
	{
		"a hold that sets more aside under a budget than in sources",
		func(d damage) {
			d.transfer(openHold, func(x *journal.Transfer) { x.Legs[1].Held += money.Unit })
			d.entry(underKey, 5, func(e *journal.Entry) { e.Held, e.After.Held = e.Held+money.Unit, e.After.Held+money.Unit })
			for n := uint64(6); n <= 9; n++ {
				d.entry(underKey, n, func(e *journal.Entry) { e.After.Held += money.Unit })
			}
			d.state(underKey, func(s *journal.State) { s.Held += money.Unit })
		},
		[]string{fmt.Sprintf("transfer %v: it sets 11.00 aside under %s, but 10.00 in sources", openHold, underKey)},
	},
	{
		"a credit with the id of the end of a hold",
		func(d damage) {
			d.book(journal.Transfer{ID: journal.EndOf(openHold), Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Operator, wallet, money.Unit)})
		},
		[]string{fmt.Sprintf("transfer %v: transfer %v must be its end, but is a credit", openHold, journal.EndOf(openHold))},
	},
	{
		"a hold that cannot be read",
		func(d damage) { d.set(journal.HoldKey("ann", paidHold), []byte{2}) },
		[]string{
			fmt.Sprintf("hold %v of ann: its record cannot be read: storage: record version 2, this build reads 1", paidHold),
			"user ann: the charges of calls and tasks and the usage of all days differ by -6.00",
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 0 calls, -1 tasks, 0 tokens in and 0 out, -6.00 charged and 0.00 uncollected",
		},
	},
	{
		"a hold record at the key of another hold",
		func(d damage) { d.set(journal.HoldKey("ann", paidHold), d.get(journal.HoldKey("ann", voidHold))) },
		[]string{
			fmt.Sprintf("hold %v of ann: its record is that of hold %v of ann", paidHold, voidHold),
			"user ann: the charges of calls and tasks and the usage of all days differ by -6.00",
			"usage ann/20261120/key_1/m: the calls and tasks of the day differ from it by 0 calls, -1 tasks, 0 tokens in and 0 out, -6.00 charged and 0.00 uncollected",
		},
	},
	{
		"a hold that ends twice",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Settle, User: "ann", Reference: paidHold.String(), Legs: journal.LegsBetween(wallet, journal.Spent, money.Unit)})
		},
		[]string{fmt.Sprintf("transfer %v: it ends hold %v, which only transfer %v may do: a hold ends once", extra, paidHold, journal.EndOf(paidHold))},
	},
	{
		"a void without a hold",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Void, User: "ann", Reference: "x"})
		},
		[]string{fmt.Sprintf("transfer %v: it ends no hold: a transfer id has 32 hexadecimal digits, this has 1", extra)},
	},
}
