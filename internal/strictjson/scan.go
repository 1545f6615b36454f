package strictjson

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Scan reads body once. It checks that body is a JSON object, and applies t to its members. It
// stores the value of each rule r with a Slot in fields[r.Slot]. fields[0] is the object itself.
// To add a member to the object, insert it at fields[0].Start+1, with a comma after it if
// fields[0].Len is not zero.
//
// Fields of absent members are cleared, so fields may be used again. The slice must be longer
// than the highest Slot, and may be nil if there is none. After an error its content is
// undefined.
//
// Scan does not allocate, unless it returns an error.
func (t *Table) Scan(body []byte, fields []Value) *fault.Fault {
	return t.ScanNotes(body, fields, nil)
}

// ScanNotes is [Table.Scan], and appends to notes each value of a rule with a Note, in the
// order of the body. It refuses a body with more than MaxNotes of them. Notes may be nil. It
// only allocates to grow notes, unless it returns an error.
func (t *Table) ScanNotes(body []byte, fields []Value, notes *[]Note) *fault.Fault {
	clear(fields)
	s := scanner{body: body, fields: fields, notes: notes}
	if bytes.HasPrefix(body, []byte("\uFEFF")) {
		s.syntaxError(0, "a byte order mark")
		return s.fault
	}

	start := s.space(0)
	if s.peek(start) != '{' {
		s.unexpected(start, "an object")
		return s.fault
	}
	end, members := s.object(start, 1, t, 0)
	if end < 0 {
		return s.fault
	}
	if rest := s.space(end); rest < len(body) {
		s.unexpected(rest, "the end of the body")
		return s.fault
	}
	if len(fields) > 0 {
		fields[0] = Value{Kind: Object, Start: start, End: end, Len: members}
	}
	return nil
}

// scanner is the state of one Scan. Members with rules are read by recursion, one level for
// each nested table. skip reads all others. A comment in grammar.go describes the results of
// the methods.
type scanner struct {
	body   []byte
	fields []Value
	notes  *[]Note          // nil: not needed
	at     [maxNesting]step // the path to the current value, one step for each table
	fault  *fault.Fault
}

// step is a member and, within an array, the index of the element.
type step struct {
	name  string
	index int // -1: not in an array
}

// object reads the object at body[i], at this depth of brackets and level of tables, and
// applies t to it.
func (s *scanner) object(i, depth int, t *Table, level int) (end, members int) {
	if depth > MaxDepth {
		return s.tooDeep(i), 0
	}
	open := i
	var seen, given uint64 // sets of rules
	if i = s.space(i + 1); s.peek(i) == '}' {
		return s.close(open, i, t, given, level), 0
	}
	for {
		name := i
		if s.peek(i) != '"' {
			return s.unexpected(i, "a name in quotes"), 0
		}
		after, escapes := s.string(i)
		if after < 0 {
			return after, 0
		}
		r, ok := s.lookup(t, s.body[i+1:after-1], escapes, level)
		if !ok {
			return -1, 0
		}
		if i = s.colon(after); i < 0 {
			return i, 0
		}

		if r == nil {
			i = s.skip(i, depth)
		} else {
			s.at[level] = step{name: r.Name, index: -1}
			if seen&r.bit != 0 && r.Deciding {
				return s.refuse(level, "is given twice"), 0
			}
			seen |= r.bit
			var v Value
			if v = s.member(i, depth, r, level); v.Kind != 0 {
				given |= r.bit
			}
			i = v.End
			if r.Note != 0 && !s.addNote(Note{Name: r.Note, Object: open, At: name, Value: v}, r, level) {
				return -1, 0
			}
		}
		if i < 0 {
			return i, 0
		}
		members++

		i = s.space(i)
		switch s.peek(i) {
		case ',':
			i = s.space(i + 1)
		case '}':
			return s.close(open, i, t, given, level), members
		default:
			return s.unexpected(i, "',' or '}'"), 0
		}
	}
}

// addNote appends n, to which r applies, unless it is null, false for an unknown member, or a
// usual string. It returns false and sets the fault if there are too many notes.
func (s *scanner) addNote(n Note, r *rule, level int) bool {
	if s.notes == nil || n.End < 0 || n.Kind&^Null == 0 {
		return true
	}
	switch {
	case r.isUnknown && n.Kind == Bool && !n.Bool(s.body):
		return true
	case n.Kind == String && len(r.Usual) > 0:
		raw := s.body[n.Start+1 : n.End-1]
		if slices.ContainsFunc(r.Usual, func(word string) bool { return string(raw) == word }) {
			return true
		}
	}
	if len(*s.notes) == MaxNotes {
		if r.isUnknown {
			s.at[level].name = n.Member(s.body)
		}
		s.refuse(level, "exceeds the limit of "+strconv.Itoa(MaxNotes)+" members that affect the price")
		return false
	}
	n.Index = -1
	if level > 0 {
		n.Index = s.at[0].index
	}
	*s.notes = append(*s.notes, n)
	return true
}

// lookup returns the rule of t for a name as written in the body. It is the rule of the exact
// name, of any spelling, or of unknown members. It returns nil if there is none. It returns
// false and sets the fault if the name is a case variant of a Deciding one.
func (s *scanner) lookup(t *Table, name []byte, escapes bool, level int) (r *rule, ok bool) {
	if escapes {
		return s.lookupEscaped(t, name, level)
	}
	if r = t.find(name); r != nil {
		return r, true
	}
	if r = t.spelling(name); r != nil {
		return r, true
	}
	if r = t.caseVariant(name); r != nil {
		s.at[level] = step{name: r.Name, index: -1}
		s.refuse(level, "must have exactly this spelling, not "+strconv.Quote(string(name)))
		return nil, false
	}
	return t.unknown, true
}

// lookupEscaped is lookup for a name with escapes. A name that is too long for the buffer
// neither is in a table nor is a case variant of one.
func (s *scanner) lookupEscaped(t *Table, name []byte, level int) (r *rule, ok bool) {
	const longestEscape = len(`\u0065`)
	var buffer [maxName * longestEscape]byte
	if len(name) > len(buffer) {
		return t.unknown, true
	}
	return s.lookup(t, unescape(buffer[:0], name), false, level)
}

// close reads the bracket at i, which ends the object at open, and refuses the object if a
// required member is missing.
func (s *scanner) close(open, i int, t *Table, given uint64, level int) int {
	missing, absent := t.required&^given, t.absent&^given
	if missing|absent == 0 {
		return i + 1
	}
	for n := range t.rules {
		r := &t.rules[n]
		if (missing|absent)&r.bit == 0 {
			continue
		}
		s.at[level] = step{name: r.Name, index: -1}
		if missing&r.bit != 0 {
			return s.missing(level)
		}
		object := Value{Kind: Object, Start: open, End: i + 1}
		if !s.addNote(Note{Name: r.Absent, Object: open, At: open, Value: object}, r, level) {
			return -1
		}
	}
	return i + 1
}

// member reads the value of a member, checks it and stores it. The Kind of the result is zero
// if the member counts as absent, and its End is -1 if the value was refused.
func (s *scanner) member(i, depth int, r *rule, level int) Value {
	for _, slot := range r.slots {
		s.fields[slot] = Value{}
	}
	if s.peek(i) == 'n' && r.allowed&Null == 0 {
		end := s.literal(i)
		if end >= 0 && r.Required {
			end = s.missing(level)
		}
		return Value{End: end}
	}
	v := s.value(i, depth, r, level)
	if v.End >= 0 && r.Slot != 0 {
		s.fields[r.Slot] = v
	}
	return v
}

// value reads a value and checks it by r. The End of the result is -1 if it was refused.
func (s *scanner) value(i, depth int, r *rule, level int) Value {
	v := Value{Kind: kindByFirstByte[s.peek(i)], Start: i}
	if v.Kind == Number {
		if v.End, v.Kind = s.number(i); v.End < 0 {
			return v
		}
	}
	if v.Kind&r.allowed == 0 {
		if v.Kind == 0 {
			v.End = s.unexpected(i, "a value")
		} else {
			v.End = s.refuse(level, "must be "+r.wanted+", not "+v.Kind.describeGiven(r.allowed))
		}
		return v
	}
	switch v.Kind {
	case String:
		var escapes bool
		v.End, escapes = s.string(i)
		if escapes && (r.Slot != 0 || r.Note != 0) && !r.isUnknown && v.End >= 0 && !hasOnlyPairs(s.body[i+1:v.End-1]) {
			v.End = s.refuse(level, "contains half of a surrogate pair")
		}
	case Integer, Number:
		v.End = s.inRange(v, r, level)
	case Bool, Null:
		v.End = s.literal(i)
	case Object:
		switch {
		case r.Members != nil:
			v.End, v.Len = s.object(i, depth+1, r.Members, level+1)
		case r.Slot != 0:
			v.End, v.Len = s.object(i, depth+1, &noRules, level+1)
		default:
			v.End = s.skip(i, depth)
		}
	case Array:
		if r.elem != nil {
			v.End, v.Len = s.array(i, depth+1, r.elem, level)
		} else {
			v.End = s.skip(i, depth)
		}
	}
	return v
}

// noRules is the table that only counts the members of an object.
var noRules = Table{nesting: 1}

// array reads the array at body[i], at this depth of brackets, and applies r to its elements.
func (s *scanner) array(i, depth int, r *rule, level int) (end, elements int) {
	if depth > MaxDepth {
		return s.tooDeep(i), 0
	}
	if i = s.space(i + 1); s.peek(i) == ']' {
		return i + 1, 0
	}
	for {
		if !r.inner { // a path has the index of the outer array
			s.at[level].index = elements
		}
		v := s.value(i, depth, r, level)
		if i = v.End; i < 0 {
			return i, 0
		}
		elements++
		if r.Elements != 0 {
			s.fields[r.Elements].Kind |= v.Kind
			s.fields[r.Elements].Len += v.Len
		}

		i = s.space(i)
		switch s.peek(i) {
		case ',':
			i = s.space(i + 1)
		case ']':
			return i + 1, elements
		default:
			return s.unexpected(i, "',' or ']'"), 0
		}
	}
}

// inRange checks the value of a number. If the rule only allows integers, its bounds apply. If
// it allows numbers, the bounds of float64 apply. If it allows any kind, there are no bounds.
func (s *scanner) inRange(v Value, r *rule, level int) int {
	raw := s.body[v.Start:v.End]
	switch {
	case r.allowed == anything:
	case r.allowed&Number != 0:
		if !fitsFloat(raw) {
			return s.refuse(level, "is too large a number")
		}
	default:
		if n, ok := parseInteger(raw); !ok || n < r.Min || n > r.Max {
			return s.refuse(level, bounds(r.Min, r.Max))
		}
	}
	return v.End
}

// bounds returns the error for an integer out of bounds.
func bounds(minimum, maximum int64) string {
	switch {
	case minimum == math.MinInt64 && maximum == math.MaxInt64:
		return "must be an integer of 64 bits"
	case maximum == math.MaxInt64:
		return "must be an integer of at least " + strconv.FormatInt(minimum, 10)
	}
	return "must be an integer from " + strconv.FormatInt(minimum, 10) + " to " + strconv.FormatInt(maximum, 10)
}

// refuse sets the fault for the value at the current step.
func (s *scanner) refuse(level int, reason string) int {
	param := s.param(level)
	s.fault = fault.At(fault.InvalidParameter, param, "`%s` %s", param, reason)
	return -1
}

// missing sets the fault for a required member without a value.
func (s *scanner) missing(level int) int {
	param := s.param(level)
	s.fault = fault.At(fault.MissingParameter, param, "`%s` is required", param)
	return -1
}

// param returns the path of the current step, such as "messages[3].role".
func (s *scanner) param(level int) string {
	var p path
	for _, at := range s.at[:level+1] {
		p = p.member(at.name)
		if at.index >= 0 {
			p = p.index(at.index)
		}
	}
	return string(p)
}
