package storage

import (
	"bytes"
	"slices"
	"time"
)

// pending holds the writes of a batch, accessible by key and in key order. A
// key is never removed: undoing its write marks it absent.
//
// The order is built on demand, because most batches never need it. Only new
// keys are sorted then, and merged with the others in one pass. So closures
// that scan and write in turn pay for their own writes, not for those of other
// closures.
type pending struct {
	byKey map[string]*write
	all   [][]write // in order of arrival, in pieces that never move
	used  int       // number of writes in them
	order []*write  // ascending by key
	fresh []*write  // not yet in order
}

// piece is the number of writes that are allocated at once.
const piece = 64

// write is the last change of a key.
type write struct {
	key, val []byte
	purge    time.Time
	kind     writeKind
}

type writeKind byte

const (
	absent  writeKind = iota // undone: the value of the engine applies
	set                      // set to val
	deleted                  // deleted
)

func (w *write) compare(key []byte) int { return bytes.Compare(w.key, key) }

func newPending() pending { return pending{byKey: make(map[string]*write)} }

// find returns the write of a key, or nil if there is none.
func (p *pending) find(key []byte) *write {
	if w := p.byKey[string(key)]; w != nil && w.kind != absent {
		return w
	}
	return nil
}

// of returns the write of a key for a change; its kind is absent if it is new.
func (p *pending) of(key []byte) *write {
	w := p.byKey[string(key)]
	if w == nil {
		w = p.add(key)
		p.byKey[string(key)] = w
		p.fresh = append(p.fresh, w)
	}
	return w
}

func (p *pending) add(key []byte) *write {
	if p.used == len(p.all)*piece {
		p.all = append(p.all, make([]write, piece))
	}
	w := &p.all[p.used/piece][p.used%piece]
	p.used++
	w.key = key
	return w
}

// maxKept is the largest number of writes for which a reused pending keeps its
// memory.
const maxKept = 1 << 14

// clear removes the writes and keeps their memory.
func (p *pending) clear() {
	if len(p.byKey) > maxKept {
		*p = newPending()
		return
	}
	clear(p.byKey)
	clear(p.order)
	clear(p.fresh[:cap(p.fresh)])
	for i := 0; i < p.used; i += piece {
		clear(p.all[i/piece])
	}
	p.order, p.fresh, p.used = p.order[:0], p.fresh[:0], 0
}

// between returns copies of the writes in [lo, hi), ascending by key.
func (p *pending) between(lo, hi []byte) (found []write) {
	p.sort()
	from, _ := slices.BinarySearchFunc(p.order, lo, (*write).compare)
	for _, w := range p.order[from:] {
		if hi != nil && w.compare(hi) >= 0 {
			break
		}
		if w.kind != absent {
			found = append(found, *w)
		}
	}
	return found
}

// sort updates the order. It inserts the new keys from the last to the first,
// so that each of the others moves at most once.
func (p *pending) sort() {
	slices.SortFunc(p.fresh, func(x, y *write) int { return x.compare(y.key) })
	left := len(p.order) // of the others, those that have not been placed
	p.order = slices.Grow(p.order, len(p.fresh))[:left+len(p.fresh)]
	for i, w := range slices.Backward(p.fresh) {
		at, _ := slices.BinarySearchFunc(p.order[:left], w.key, (*write).compare)
		copy(p.order[at+i+1:], p.order[at:left])
		p.order[at+i] = w
		left = at
	}
	p.fresh = p.fresh[:0]
}

// changed reports whether there is at least one write.
func (p *pending) changed() bool {
	for i := range p.used {
		if p.all[i/piece][i%piece].kind != absent {
			return true
		}
	}
	return false
}

// apply passes the writes to the engine. Other goroutines may read p meanwhile.
func (p *pending) apply(t Txn) (err error) {
	for i := range p.used {
		switch w := &p.all[i/piece][i%piece]; w.kind {
		case set:
			err = t.Set(w.key, w.val, w.purge)
		case deleted:
			err = t.Delete(w.key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
