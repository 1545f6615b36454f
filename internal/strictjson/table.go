package strictjson

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limits of tables. They are far above what any body needs, and keep the state of a Scan
// small.
const (
	maxRules   = 1000 // of one table
	maxBits    = 64   // rules of one table that are Required or Deciding or have an Absent: each needs a bit in a set
	maxName    = 64   // bytes
	maxNesting = 12   // tables within tables
)

// Rule is the rule for one member of an object. A Rule with only a Name allows anything.
type Rule struct {
	// Name is the member's name, in its exact spelling.
	Name string

	// Kinds are the allowed kinds of the value; zero allows any. Number includes
	// Integer. A null counts as an absent member unless Kinds has Null.
	Kinds Kind

	// Elem are the allowed kinds of the elements of an array; zero allows any. A
	// null is refused unless Elem has Null.
	Elem Kind

	// Inner are the allowed kinds of the elements of an array within an array;
	// zero allows any and does not count them.
	Inner Kind

	// Elements is the index in the fields of a Scan for the elements of an array;
	// zero: they are not stored. Kind of that field is the set of their kinds. If
	// Inner is given, its Len is the total number of elements of the inner arrays.
	Elements int

	// Members are the rules for the members of an object, and for those of each
	// object in an array.
	Members *Table

	// Min and Max bound an Integer. Both zero: all of int64. Only Max zero: no
	// upper bound.
	Min, Max int64

	// Required refuses an object without this member, or with null for it.
	Required bool

	// Deciding marks a member that affects routing or price. A second one is
	// refused, even with an escaped name ("mod\u0065l"). A name that differs only
	// in case is refused as well, because some parsers read "Model" as "model". A
	// rule with Deciding members is Deciding itself.
	Deciding bool

	// Slot is the index in the fields of a Scan at which the value is stored; zero:
	// not stored. A stored string must not have an escaped half of a surrogate
	// pair, because parsers read it differently. If a member may be repeated, the
	// last one is stored.
	Slot int

	// Note makes [Table.ScanNotes] append a note with this number for each value of
	// this member that is not null; zero: no notes. Use it for members of the elements
	// of an array, of which there may be many. Strings are checked as with a Slot.
	Note int

	// Usual are strings that are not noted, if they are written without escapes.
	Usual []string

	// Absent makes [Table.ScanNotes] append a note with this number for each object
	// without this member, or with null for it; zero: no notes. The value of the note
	// is the object.
	Absent int

	// AnySpelling applies this rule to each name that equals Name after case,
	// underscores and hyphens are ignored: cachedContent and Cached-Content equal
	// cached_content.
	AnySpelling bool
}

// Table has the rules for the members of an object. It never changes, and is safe for
// concurrent use.
type Table struct {
	rules     []rule           // in the order of NewTable
	first     [256]uint16      // by the hash of a name: the number of a rule, from 1; 0: none
	next      []uint16         // by the number of a rule: the next one with the same hash
	spellings map[string]*rule // rules with AnySpelling, by their folded names
	common    *Table           // rules for names without one here; nil: none
	unknown   *rule            // for members without a rule; nil: they are not checked
	required  uint64           // set of the rules that are Required
	deciding  uint64           // set of the rules that are Deciding
	absent    uint64           // set of the rules with an Absent
	lowerCase bool             // names of Deciding rules have no capitals and are ASCII
	slots     []int            // all slots of this table and of those within it
	nesting   int              // levels of tables: 1 without a table within this one
}

// rule is a Rule with values computed for a scan.
type rule struct {
	Rule
	allowed   Kind   // Kinds, Number completed by Integer
	wanted    string // allowed, in words
	bit       uint64 // this rule in a set; 0 if the rule is neither Required nor Deciding and has no Absent
	elem      *rule  // for elements, if they are checked or counted
	inner     bool   // it is for elements of an inner array
	isUnknown bool   // it is for members without a rule
	slots     []int  // slots to clear when the member appears: of the member and of all members within it
}

// NewTable returns a table of rules. It panics if they contradict each other. Tables are
// package variables, so such a mistake shows when the program starts.
func NewTable(rules ...Rule) *Table {
	t, err := newTable(rules)
	if err != nil {
		panic("strictjson: " + err.Error())
	}
	return t
}

func newTable(rules []Rule) (*Table, error) {
	if len(rules) > maxRules {
		return nil, fmt.Errorf("%d rules, more than %d", len(rules), maxRules)
	}
	t := &Table{nesting: 1, lowerCase: true, rules: make([]rule, 0, len(rules)), next: make([]uint16, 1, len(rules)+1)}
	bits := 0
	for n, r := range rules {
		compiled, err := compile(r)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, err)
		}
		if slices.ContainsFunc(t.rules, func(other rule) bool { return strings.EqualFold(other.Name, r.Name) }) {
			return nil, fmt.Errorf("rule %q: another rule has this name", r.Name)
		}
		for _, slot := range compiled.slots {
			if slices.Contains(t.slots, slot) {
				return nil, fmt.Errorf("rule %q: slot %d is already used", r.Name, slot)
			}
		}
		if compiled.Required || compiled.Deciding || compiled.Absent != 0 {
			if bits == maxBits {
				return nil, fmt.Errorf("rule %q: more than %d are required or deciding, or noted when absent", r.Name, maxBits)
			}
			compiled.bit = 1 << bits
			bits++
		}
		if compiled.Required {
			t.required |= compiled.bit
		}
		if compiled.Deciding {
			t.deciding |= compiled.bit
			t.lowerCase = t.lowerCase && !foldable([]byte(r.Name))
		}
		if compiled.Absent != 0 {
			t.absent |= compiled.bit
		}
		if r.Members != nil {
			t.nesting = max(t.nesting, 1+r.Members.nesting)
		}
		t.rules = append(t.rules, compiled)
		h := hash([]byte(r.Name))
		t.next = append(t.next, t.first[h])
		t.first[h] = uint16(n + 1)
		if r.AnySpelling {
			if err := t.addSpelling(&t.rules[n]); err != nil {
				return nil, err
			}
		}
		t.slots = append(t.slots, compiled.slots...)
	}
	if t.nesting > maxNesting {
		return nil, fmt.Errorf("%d levels of tables, more than %d", t.nesting, maxNesting)
	}
	return t, nil
}

// NoteUnknown returns t with a note, under this number, for each member without a rule whose
// value is neither null nor false.
func (t *Table) NoteUnknown(note int) *Table {
	closed := *t
	closed.unknown = &rule{Rule: Rule{Note: note}, allowed: anything, isUnknown: true}
	return &closed
}

// With returns t with the rules of common for names without a rule in t. It lets tables share
// rules. It panics if common requires or stores a member.
func (t *Table) With(common *Table) *Table {
	if common.required|common.deciding|common.absent != 0 || len(common.slots) > 0 || common.common != nil || common.unknown != nil {
		panic("strictjson: shared rules must not be required, deciding, noted when absent or stored")
	}
	more := *t
	more.common = common
	more.nesting = max(t.nesting, common.nesting)
	return &more
}

func compile(r Rule) (rule, error) {
	c := rule{Rule: r, allowed: r.Kinds}
	if c.allowed == 0 {
		c.allowed = anything
	}
	if c.allowed&Number != 0 {
		c.allowed |= Integer
	}
	c.wanted = c.allowed.describe(r.Elem)

	switch {
	case r.Name == "" || len(r.Name) > maxName:
		return c, fmt.Errorf("a name has 1 to %d bytes", maxName)
	case r.Slot < 0:
		return c, fmt.Errorf("slot %d is negative", r.Slot)
	case r.Note < 0 || r.Absent < 0:
		return c, fmt.Errorf("note %d is negative", min(r.Note, r.Absent))
	case len(r.Usual) > 0 && (r.Note == 0 || c.allowed&String == 0):
		return c, fmt.Errorf("it has usual strings, but does not note strings")
	case r.Elements < 0 || r.Elements != 0 && c.allowed&Array == 0:
		return c, fmt.Errorf("it stores its elements, but is not an array")
	case r.Inner != 0 && (r.Elem&Array == 0 || r.Members != nil):
		return c, fmt.Errorf("it has inner elements, but its elements are not arrays")
	case r.Elem != 0 && c.allowed&Array == 0:
		return c, fmt.Errorf("it has elements, but is not an array")
	case r.Members != nil && c.allowed&(Object|Array) == 0:
		return c, fmt.Errorf("it has members, but is neither an object nor an array")
	case r.Min != 0 || r.Max != 0:
		if c.allowed&Integer == 0 || c.allowed&Number != 0 {
			return c, fmt.Errorf("it has bounds, but is not an integer")
		}
	}
	switch {
	case c.Min == 0 && c.Max == 0:
		c.Min, c.Max = math.MinInt64, math.MaxInt64
	case c.Max == 0:
		c.Max = math.MaxInt64
	}
	if c.Min > c.Max {
		return c, fmt.Errorf("its minimum %d is greater than its maximum %d", c.Min, c.Max)
	}

	for _, slot := range []int{r.Slot, r.Elements} {
		if slot != 0 {
			c.slots = append(c.slots, slot)
		}
	}
	if m := r.Members; m != nil {
		if c.allowed&Array != 0 && len(m.slots) > 0 {
			return c, fmt.Errorf("members of the elements of an array cannot be stored: there may be many")
		}
		c.slots = append(c.slots, m.slots...)
		c.Deciding = c.Deciding || m.deciding != 0
	}
	if c.allowed&Array != 0 && (r.Elem != 0 || r.Members != nil || r.Slot != 0 || r.Elements != 0) {
		c.elem = element(r)
	}
	return c, nil
}

// element returns the rule for the elements of an array that r allows.
func element(r Rule) *rule {
	e := &rule{Rule: Rule{Kinds: r.Elem, Members: r.Members, Elements: r.Elements}, allowed: r.Elem}
	if e.allowed == 0 {
		e.allowed = anything
	}
	if e.allowed&Number != 0 {
		e.allowed |= Integer
	}
	e.Min, e.Max = math.MinInt64, math.MaxInt64
	e.wanted = e.allowed.describe(r.Inner)
	if r.Inner != 0 {
		e.elem = element(Rule{Elem: r.Inner})
		e.elem.inner = true
	}
	return e
}
