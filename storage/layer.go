package storage

import "bytes"

// layer is a reader with pending writes on top of base.
type layer struct {
	base Reader
	pending
}

// rehearser is implemented by the readers of an engine's rehearsals.
type rehearser interface{ Rehearsed() bool }

// Rehearsed reports whether a closure runs in a rehearsal: only so that a shared engine learns
// which keys it reads. What it reads may be out of date, and what it writes is dropped.
func Rehearsed(t Reader) bool {
	r, ok := t.(rehearser)
	return ok && r.Rehearsed()
}

// Rehearsed implements rehearser.
func (l *layer) Rehearsed() bool { return Rehearsed(l.base) }

// Get implements [Reader].
func (l *layer) Get(key []byte) ([]byte, error) {
	if w := l.find(key); w != nil {
		return w.val, nil
	}
	return l.base.Get(key)
}

// Scan implements [Reader]. It merges the keys of the base with those of the
// layer, which it copies first, so that fn may write.
func (l *layer) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	own := l.between(lo, hi)

	// ownBelow passes the keys of the layer below limit to fn; all of them if
	// limit is nil.
	more := true
	ownBelow := func(limit []byte) {
		for more && len(own) > 0 && (limit == nil || own[0].compare(limit) < 0) {
			if w := own[0]; w.kind == set {
				more = fn(w.key, w.val)
			}
			own = own[1:]
		}
	}
	err := l.base.Scan(lo, hi, func(key, val []byte) bool {
		ownBelow(key)
		if len(own) > 0 && bytes.Equal(own[0].key, key) {
			return more // the layer's own version follows, before the next key
		}
		more = more && fn(key, val)
		return more
	})
	if err != nil {
		return err
	}
	ownBelow(nil)
	return nil
}
