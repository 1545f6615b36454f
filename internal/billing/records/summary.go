package records

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Summary is the summary of all subscriptions of a user. It is one record, which is read whenever
// the user's money changes. If the clock was set back, Running is rebuilt from the subscriptions.
type Summary struct {
	User      string
	Due       int64           // when the next subscription or period ends; zero: never
	Ended     int64           // latest end of the subscriptions that were removed from Running at their end
	Purchases map[int64]int64 // number of purchases by plan id
	Running   []Running       // by end, then by id

	stored    bool  // the store has a record of the user
	storedDue int64 // Due in that record
	changed   bool  // a field other than Due differs from that record
}

// Running is a subscription that had not ended when the summary was written.
type Running struct {
	ID  int64
	End int64
	Presence
}

// Presence is the period that a running subscription was in when the summary was written, or zero
// if that is unknown. It is valid for all of [From, Until), because sales never change and a renewal
// begins after them. So sources are listed without reading the sales. Times are Unix seconds.
type Presence struct {
	From  int64
	Until int64
	Start int64 // start of the period, which is open
}

// Presence returns the presence of an open period.
func (p *Period) Presence() Presence { return Presence{p.from, p.until, p.Start} }

// Compare orders subscriptions by their end, then by id.
func (x Running) Compare(y Running) int {
	return cmp.Or(cmp.Compare(x.End, y.End), cmp.Compare(x.ID, y.ID))
}

// CountPurchase counts a purchase of a plan.
func (s *Summary) CountPurchase(plan int64) {
	if s.Purchases == nil {
		s.Purchases = make(map[int64]int64)
	}
	s.Purchases[plan]++
	s.changed = true
}

// Add adds a running subscription in its place.
func (s *Summary) Add(x Running) {
	i, _ := slices.BinarySearchFunc(s.Running, x, Running.Compare)
	s.Running = slices.Insert(s.Running, i, x)
	s.changed = true
}

// Remove removes a subscription if it is running.
func (s *Summary) Remove(id int64) {
	s.Running = slices.DeleteFunc(s.Running, func(x Running) bool { return x.ID == id })
	s.changed = true
}

// RemoveEnded removes the subscriptions that have ended.
func (s *Summary) RemoveEnded(now time.Time) {
	n := 0
	for ; n < len(s.Running) && s.Running[n].End <= now.Unix(); n++ {
		s.Ended = max(s.Ended, s.Running[n].End)
	}
	s.Running = slices.Delete(s.Running, 0, n)
	s.changed = s.changed || n > 0
}

// SetPresence sets the period that the i-th running subscription is in.
func (s *Summary) SetPresence(i int, p Presence) {
	s.changed = s.changed || s.Running[i].Presence != p
	s.Running[i].Presence = p
}

// ReadSummary returns the summary of a user at a time.
func ReadSummary(r storage.Reader, user string, now time.Time) (*Summary, error) {
	s, err := Summaries.Get(r, user)
	if err != nil || s == nil {
		return &Summary{User: user}, err
	}
	s.stored, s.storedDue = true, s.Due
	if now.Unix() < s.Ended { // the clock was ahead when subscriptions were removed, so they may not have ended
		err = s.rebuild(r, now)
	}
	return s, err
}

// rebuild sets Running from all subscriptions of the user.
func (s *Summary) rebuild(r storage.Reader, now time.Time) error {
	s.Ended, s.Running, s.changed = 0, nil, true
	for have, err := range Subscriptions.Scan(r, Subscriptions.Under(s.User)) {
		switch {
		case err != nil:
			return err
		case have.Cancelled != 0:
		case have.End <= now.Unix():
			s.Ended = max(s.Ended, have.End)
		default:
			s.Add(Running{ID: have.ID, End: have.End})
		}
	}
	return nil
}

// Write stores the summary if it has changed.
func (s *Summary) Write(t storage.Txn) error {
	if !s.changed && s.Due == s.storedDue {
		return nil
	}
	var before *Summary
	if s.stored {
		before = &Summary{User: s.User, Due: s.storedDue}
	}
	if err := Summaries.Put(t, before, s); err != nil {
		return err
	}
	s.stored, s.storedDue, s.changed = true, s.Due, false
	return nil
}

// encode encodes the summary as variable-length integers. They are Due, Ended, the number of
// purchased plans and each plan, the number of running subscriptions and each subscription, and
// then the user. As JSON, a summary of three subscriptions takes 32 µs to write and read, a tenth
// of a purchase.
func (s *Summary) encode() []byte {
	b := make([]byte, 0, 48+8*len(s.Purchases)+24*len(s.Running))
	b = binary.AppendVarint(binary.AppendVarint(b, s.Due), s.Ended)
	b = binary.AppendVarint(b, int64(len(s.Purchases)))
	for plan, times := range s.Purchases {
		b = binary.AppendVarint(binary.AppendVarint(b, plan), times)
	}
	b = binary.AppendVarint(b, int64(len(s.Running)))
	for _, x := range s.Running {
		for _, n := range [...]int64{x.ID, x.End, x.From, x.Until, x.Start} {
			b = binary.AppendVarint(b, n)
		}
	}
	return append(b, s.User...)
}

// decodeSummary decodes the result of encode.
func decodeSummary(stored []byte) (*Summary, error) {
	in := integers(stored)
	s := &Summary{Due: in.next(), Ended: in.next()}
	if n := in.next(); n > 0 {
		s.Purchases = make(map[int64]int64)
		for ; n > 0 && in != nil; n-- {
			plan := in.next()
			s.Purchases[plan] = in.next()
		}
	}
	for n := in.next(); n > 0 && in != nil; n-- {
		s.Running = append(s.Running, Running{in.next(), in.next(), Presence{in.next(), in.next(), in.next()}})
	}
	if in == nil {
		return nil, errors.New("it is damaged")
	}
	s.User = string(in)
	return s, nil
}

// integers are the variable-length integers that have not been read yet. It is nil after an error.
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
