package memory

import (
	"bytes"
	"math/rand/v2"
)

// tree is an immutable ordered map: a treap whose changes copy the path from
// the root to the changed node. An older root therefore stays a valid snapshot
// and needs no lock. The nil tree is empty.
type tree struct {
	key, val    []byte
	priority    uint64 // heap order; random, so that depth stays logarithmic
	left, right *tree
}

// get returns the value of key, or nil if there is none.
func (t *tree) get(key []byte) []byte {
	for t != nil {
		switch c := bytes.Compare(key, t.key); {
		case c < 0:
			t = t.left
		case c > 0:
			t = t.right
		default:
			return t.val
		}
	}
	return nil
}

// set returns t with key set to val. It keeps both slices.
func (t *tree) set(key, val []byte) *tree {
	if t == nil {
		return &tree{key: key, val: val, priority: rand.Uint64()}
	}
	n := *t
	switch c := bytes.Compare(key, t.key); {
	case c < 0:
		n.left = t.left.set(key, val)
		if l := n.left; l.priority > n.priority { // l is new, so no other tree shares it
			n.left, l.right = l.right, &n
			return l
		}
	case c > 0:
		n.right = t.right.set(key, val)
		if r := n.right; r.priority > n.priority {
			n.right, r.left = r.left, &n
			return r
		}
	default:
		n.val = val
	}
	return &n
}

// remove returns t without key.
func (t *tree) remove(key []byte) *tree {
	if t == nil {
		return nil
	}
	n := *t
	switch c := bytes.Compare(key, t.key); {
	case c < 0:
		n.left = t.left.remove(key)
	case c > 0:
		n.right = t.right.remove(key)
	default:
		return join(t.left, t.right)
	}
	return &n
}

// join returns the union of two trees. Every key of l is less than any key of
// r.
func join(l, r *tree) *tree {
	switch {
	case l == nil:
		return r
	case r == nil:
		return l
	case l.priority > r.priority:
		n := *l
		n.right = join(l.right, r)
		return &n
	default:
		n := *r
		n.left = join(l, r.left)
		return &n
	}
}

// scan calls fn for the keys in [lo, hi) in ascending order until fn returns
// false. A nil hi means the end. It reports whether fn wanted more.
func (t *tree) scan(lo, hi []byte, fn func(key, val []byte) bool) bool {
	if t == nil {
		return true
	}
	fromLo := bytes.Compare(t.key, lo) >= 0
	belowHi := hi == nil || bytes.Compare(t.key, hi) < 0
	if fromLo && !t.left.scan(lo, hi, fn) {
		return false
	}
	if fromLo && belowHi && !fn(t.key, t.val) {
		return false
	}
	return !belowHi || t.right.scan(lo, hi, fn)
}
