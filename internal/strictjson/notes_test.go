package strictjson

import (
	"strings"
	"testing"
)

func TestScanNotesEveryElementAndNamesItsPath(t *testing.T) {
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

func TestScanBoundsItsNotes(t *testing.T) {
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
	if f := completionsTable.Scan(body(MaxNotes+1), fields); f != nil {
		t.Errorf("a scan that wants no notes is refused: %v", f)
	}
}

// Not parallel: it counts allocations of the process.
func TestScanWithNothingToNoteAllocatesNothing(t *testing.T) {
	body := []byte(`{"model":"m","prompt":[[1,2],[3]],"tokens":[[1,2],[3]],"parts":[{"type":"text"},{"type":"tool"}]}`)
	if f := completionsTable.Scan(body, make([]Value, completionsFields)); f == nil {
		t.Fatal("prompt takes strings alone in this table")
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
	if v, in := fields[slotTokens], fields[slotElements]; v.Len != 2 || in != (Value{Kind: Array, Len: 3}) {
		t.Errorf("tokens are %+v, of %+v", v, in)
	}
}
