package strictjson

import (
	"fmt"
	"strings"
	"testing"
)

func TestScanNotesEveryElementWithItsPath(t *testing.T) {
	t.Parallel()
	body := []byte(`{"model":"m","tier":"flex","prompt":"p","parts":["x",{"type":"text"},` +
		`{"source":{"url":"a"},"type":"image"},{"type":null,"source":{"url":null}},{"type":"te\u0078t","source":"u"}]}`)
	var notes []Note
	if f := completionsTable.ScanNotes(body, make([]Value, completionsFields), &notes); f != nil {
		t.Fatal(f)
	}
	var got []string
	for _, n := range notes {
		got = append(got, PathOf(body, n.Start)+"="+n.Text(body))
	}
	if want := "tier=flex parts[2].source.url=a parts[2].type=image parts[4].type=text"; strings.Join(got, " ") != want {
		t.Errorf("noted %q, want %q", got, want)
	}
	if notes[0].Index != -1 || notes[1].Index != 2 || notes[2].Index != 2 || notes[1].Object == notes[2].Object || notes[3].Index != 4 {
		t.Errorf("noted at %+v", notes)
	}
}

// closedTable notes unknown members.
var closedTable = NewTable(
	Rule{Name: "model", Deciding: true},
	Rule{Name: "cached_content", AnySpelling: true, Note: 1},
	Rule{Name: "tools", Elem: Object, Members: NewTable(Rule{Name: "type", Kinds: String, Absent: 2}).NoteUnknown(3)},
).NoteUnknown(4)

func TestUnknownMembersAreNoted(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"model":"m","x":1,"y":null,"z":false,"a b":true}`:                                    `4 x=1, 4 a b=true`,
		`{"\u0078":{"y":[1]},"mod\u0065l":"m","":"\ud800"}`:                                    `4 x={"y":[1]}, 4 ="\ud800"`,
		`{"` + strings.Repeat("x", 500) + `":0}`:                                               `4 ` + strings.Repeat("x", 500) + `=0`,
		`{"cachedContent":1,"CACHED-CONTENT":2,"cached_content":3}`:                            `1 cachedContent=1, 1 CACHED-CONTENT=2, 1 cached_content=3`,
		`{"cached_content_":1,"cachedcontents":2,"c\u0061chedContent":3,"cachedContent":null}`: `1 cached_content_=1, 4 cachedcontents=2, 1 cachedContent=3`,
		`{"tools":[{"type":"a"},{"type":"b","x":[]},{"y":"z"}]}`:                               `3 tools[1].x=[], 3 tools[2].y="z", 2 tools[2]={"y":"z"}`,
		`{"tools":[{},{"type":null}]}`:                                                         `2 tools[0]={}, 2 tools[1]={"type":null}`,
	} {
		var notes []Note
		if f := closedTable.ScanNotes([]byte(body), make([]Value, 1), &notes); f != nil {
			t.Errorf("%s: %v", body, f)
		}
		var got []string
		for _, n := range notes {
			name := ""
			switch {
			case n.Name == 2 || n.Index >= 0:
				name = PathOf([]byte(body), n.Start)
			default:
				name = n.Member([]byte(body))
			}
			got = append(got, fmt.Sprintf("%d %s=%s", n.Name, name, n.Raw([]byte(body))))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: noted %s, want %s", body, strings.Join(got, ", "), want)
		}
	}
	if f := closedTable.ScanNotes([]byte(`{"Model":1}`), make([]Value, 1), nil); f == nil {
		t.Error("a case variant of a Deciding member passes")
	}
}

func TestScanNotesLimitsTheNumberOfNotes(t *testing.T) {
	t.Parallel()
	body := func(parts int) []byte {
		return []byte(`{"model":"m","prompt":"p","parts":[` + strings.Repeat(`{"type":"x"},`, parts-1) + `{"type":"x"}]}`)
	}
	fields := make([]Value, completionsFields)
	var notes []Note
	if f := completionsTable.ScanNotes(body(MaxNotes), fields, &notes); f != nil || len(notes) != MaxNotes {
		t.Errorf("%d notes are refused: %v", MaxNotes, f)
	}
	notes = nil
	f := completionsTable.ScanNotes(body(MaxNotes+1), fields, &notes)
	if f == nil || f.Param != "parts[10000].type" {
		t.Errorf("%d notes: %v", MaxNotes+1, f)
	}
	notes = make([]Note, MaxNotes)
	if f := closedTable.ScanNotes([]byte(`{"tools":[{"a b":1}]}`), fields, &notes); f == nil || f.Param != `tools[0]["a b"]` {
		t.Errorf("too many unknown members: %v", f)
	}
	if f := closedTable.ScanNotes([]byte(`{"tools":[{}]}`), fields, &notes); f == nil || f.Param != `tools[0].type` {
		t.Errorf("too many absent members: %v", f)
	}
	if f := completionsTable.Scan(body(MaxNotes+1), fields); f != nil {
		t.Errorf("a scan without notes is refused: %v", f)
	}
}

// TestScanWithoutNotesAllocatesNothing is not parallel: it counts allocations of the process.
func TestScanWithoutNotesAllocatesNothing(t *testing.T) {
	body := []byte(`{"model":"m","prompt":[[1,2],[3]],"tokens":[[1,2],[3]],"parts":[{"type":"text"},{"type":"tool"}]}`)
	if f := completionsTable.Scan(body, make([]Value, completionsFields)); f == nil {
		t.Fatal("prompt only accepts strings in this table")
	}
	body = []byte(strings.Replace(string(body), `[[1,2],[3]]`, `"p"`, 1))
	fields := make([]Value, completionsFields)
	var notes []Note
	if n := testing.AllocsPerRun(10, func() {
		if f := completionsTable.ScanNotes(body, fields, &notes); f != nil {
			t.Fatal(f)
		}
	}); n != 0 || len(notes) != 0 {
		t.Errorf("%v allocations, %d notes", n, len(notes))
	}
	if v, elements := fields[slotTokens], fields[slotElements]; v.Len != 2 || elements != (Value{Kind: Array, Len: 3}) {
		t.Errorf("tokens are %+v, their elements %+v", v, elements)
	}
	notes = make([]Note, 0, 10)
	for _, text := range []string{`{"model":"m","y":null,"Z":false}`, `{"model":"m","y":1,"Z":2,"Cached-Content":3,"tools":[{}]}`} {
		body := []byte(text)
		if n := testing.AllocsPerRun(10, func() {
			notes = notes[:0]
			if f := closedTable.ScanNotes(body, fields[:1], &notes); f != nil {
				t.Fatal(f)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", body, n)
		}
	}
}
