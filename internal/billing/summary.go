package billing

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// summary is what all subscriptions of a user come to. Whenever his money changes
// it is looked at, so it is one record that tells all of it at once. What runs
// follows from his subscriptions, and is made from them again where it cannot be
// true.
type summary struct {
	due     int64     // when time will change his subscriptions, as subdue says; zero: never
	struck  int64     // the latest end of those that were struck off because they had ended
	bought  []count   // by the number of the plan
	running []running // soonest to end first, then by number

	stored []byte // as it was read; nil when it was not there
}

// count is how often a plan was bought.
type count struct{ plan, times int64 }

// running is a subscription that has not ended, as far as anybody has looked.
type running struct {
	id, end  int64
	presence presence // zero when nobody has looked
}

// presence is the period that a running subscription was in when somebody last
// looked. Sales never change, and a renewal is for a time after all of them, so
// the answer holds for all of [from, until): whoever lists what a user may spend
// has it from the summary, without reading what was sold. Times are Unix seconds.
type presence struct {
	from, until int64
	start       int64 // names the period, which is open
}

// presence returns what the summary says of a period that is open.
func (p *period) presence() presence { return presence{p.from, p.until, p.start} }

func (x *running) compare(y running) int {
	return cmp.Or(cmp.Compare(x.end, y.end), cmp.Compare(x.id, y.id))
}

// purchases is how often the user has bought a plan.
func (r *summary) purchases(plan int64) int64 {
	if i, found := r.find(plan); found {
		return r.bought[i].times
	}
	return 0
}

// countPurchase counts one more.
func (r *summary) countPurchase(plan int64) {
	i, found := r.find(plan)
	if !found {
		r.bought = slices.Insert(r.bought, i, count{plan: plan})
	}
	r.bought[i].times++
}

func (r *summary) find(plan int64) (int, bool) {
	return slices.BinarySearchFunc(r.bought, plan, func(c count, plan int64) int { return cmp.Compare(c.plan, plan) })
}

// add puts a subscription in the summary, in its place.
func (r *summary) add(x running) {
	i, _ := slices.BinarySearchFunc(r.running, x, func(have, x running) int { return have.compare(x) })
	r.running = slices.Insert(r.running, i, x)
}

// remove takes a subscription off, if it is there.
func (r *summary) remove(id int64) {
	r.running = slices.DeleteFunc(r.running, func(x running) bool { return x.id == id })
}

// strike takes off what has ended.
func (r *summary) strike(now time.Time) {
	n := 0
	for ; n < len(r.running) && r.running[n].end <= now.Unix(); n++ {
		r.struck = max(r.struck, r.running[n].end)
	}
	r.running = slices.Delete(r.running, 0, n)
}

// setDue has the sweeper look at the user at a time; zero: not at all.
func (r *summary) setDue(t storage.Txn, user string, due int64) error {
	if r.due == due {
		return nil
	}
	if r.due != 0 {
		if err := t.Delete(storage.Key(duePrefix, r.due, user)); err != nil {
			return err
		}
	}
	r.due = due
	if due == 0 {
		return nil
	}
	return t.Set(storage.Key(duePrefix, due, user), nil, never)
}

// readSummary returns the summary of a user at a time.
func readSummary(r storage.Reader, user string, now time.Time) (*summary, error) {
	stored, err := r.Get(storage.Key(summaryPrefix, user))
	if err != nil {
		return nil, err
	}
	if stored == nil {
		return new(summary), nil
	}
	have, err := decodeSummary(stored)
	if err != nil {
		return nil, fmt.Errorf("the summary of %s: %w", user, err)
	}
	if now.Unix() < have.struck { // by a clock that was ahead: it takes from nobody what is not over
		err = have.enlist(r, user, now)
	}
	return have, err
}

// enlist puts the subscriptions of a user in the summary that have not ended now.
func (r *summary) enlist(reader storage.Reader, user string, now time.Time) error {
	r.struck, r.running = 0, nil
	lo, hi := storage.Below(subscriptionPrefix, user)
	return scan(reader, lo, hi, func(_ []byte, s subscriptionRecord) bool {
		switch {
		case s.Cancelled != 0:
		case s.End <= now.Unix():
			r.struck = max(r.struck, s.End)
		default:
			r.add(running{id: s.ID, end: s.End})
		}
		return true
	})
}

// write stores what has changed.
func (r *summary) write(t storage.Txn, user string) error {
	if r.stored == nil && r.due == 0 && r.struck == 0 && len(r.bought) == 0 && len(r.running) == 0 {
		return nil
	}
	record := r.encode()
	if bytes.Equal(record, r.stored) {
		return nil
	}
	return t.Set(storage.Key(summaryPrefix, user), record, never)
}

// summaryVersion is the first byte of a summary. What follows are variable-length
// integers: due, struck, how many plans were bought, for each its number and how
// often, and for each running subscription its number, its end and its presence.
const summaryVersion = 1

func (r *summary) encode() []byte {
	b := make([]byte, 1, 32+8*len(r.bought)+24*len(r.running))
	b[0] = summaryVersion
	b = binary.AppendVarint(b, r.due)
	b = binary.AppendVarint(b, r.struck)
	b = binary.AppendVarint(b, int64(len(r.bought)))
	for _, c := range r.bought {
		b = binary.AppendVarint(binary.AppendVarint(b, c.plan), c.times)
	}
	for _, x := range r.running {
		for _, n := range [...]int64{x.id, x.end, x.presence.from, x.presence.until, x.presence.start} {
			b = binary.AppendVarint(b, n)
		}
	}
	return b
}

// decodeSummary reads what encode wrote.
func decodeSummary(stored []byte) (*summary, error) {
	if len(stored) == 0 || stored[0] != summaryVersion {
		return nil, fmt.Errorf("it is of a version that this build does not read: %x", stored)
	}
	in := integers(stored[1:])
	r := &summary{due: in.next(), struck: in.next(), stored: stored}
	for range in.next() {
		if in == nil {
			break
		}
		r.bought = append(r.bought, count{in.next(), in.next()})
	}
	for len(in) > 0 {
		r.running = append(r.running, running{in.next(), in.next(), presence{in.next(), in.next(), in.next()}})
	}
	if in == nil {
		return nil, fmt.Errorf("it is damaged: %x", stored)
	}
	return r, nil
}

// integers are variable-length ones that have not been read yet; nil after one
// that cannot be.
type integers []byte

func (in *integers) next() int64 {
	n, size := binary.Varint(*in)
	if size <= 0 {
		*in = nil
		return 0
	}
	*in = (*in)[size:]
	return n
}
