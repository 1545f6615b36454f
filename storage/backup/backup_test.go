package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

var entries = []Entry{
	{Key: []byte("a"), Val: []byte("one")},
	{Key: []byte("b"), Val: []byte{}, Purge: 1_900_000_000},
	{Key: []byte("large"), Val: bytes.Repeat([]byte("x"), 3<<20)},
}

func write(tb testing.TB, entries ...Entry) []byte {
	tb.Helper()
	var written bytes.Buffer
	if err := Write(&written, passing(entries)); err != nil {
		tb.Fatal(err)
	}
	return written.Bytes()
}

// passing returns the function that passes entries to a backup.
func passing(entries []Entry) func(add func(Entry) bool) error {
	return func(add func(Entry) bool) error {
		for _, e := range entries {
			if !add(e) {
				break
			}
		}
		return nil
	}
}

func read(backup []byte) (entries []Entry, err error) {
	for r := NewReader(bytes.NewReader(backup)); ; {
		e, err := r.Next()
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
}

func TestABackupIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for n := range len(entries) + 1 {
		got, err := read(write(t, entries[:n]...))
		if err != nil || !slices.EqualFunc(got, entries[:n], func(a, b Entry) bool {
			return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Val, b.Val) && a.Purge == b.Purge
		}) {
			t.Errorf("%d entries: %v %v", n, got, err)
		}
	}
}

// TestADamagedBackupIsRefused cuts and changes a backup at each byte.
func TestADamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	backup := write(t, entries[:2]...)
	for cut := range backup {
		if _, err := read(backup[:cut]); err == nil {
			t.Errorf("%d of %d bytes were accepted", cut, len(backup))
		}
		flipped := bytes.Clone(backup)
		flipped[cut] ^= 0x20
		if _, err := read(flipped); err == nil {
			t.Errorf("accepted with byte %d changed", cut)
		}
	}
	for name, bad := range map[string][]byte{
		"an additional byte":    append(bytes.Clone(backup), 'x'),
		"keys that descend":     write(t, entries[1], entries[0]),
		"a key twice":           write(t, entries[0], entries[0]),
		"a key beyond the file": []byte(head + "\x01\xff\xff\x03\x00\x00x"),
		"a key too long":        []byte(head + "\x01\xff\xff\xff\xff\x0f"),
	} {
		if _, err := read(bad); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnErrorOfTheFileIsKept(t *testing.T) {
	t.Parallel()
	full := errors.New("the medium is full")
	if err := Write(failing{full}, passing(entries[2:])); !errors.Is(err, full) {
		t.Error(err)
	}
	if err := Write(io.Discard, func(func(Entry) bool) error { return full }); !errors.Is(err, full) {
		t.Error(err)
	}
	r := NewReader(io.MultiReader(strings.NewReader(head), failing{full}))
	if _, err := r.Next(); !errors.Is(err, full) {
		t.Error(err)
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }
func (f failing) Read([]byte) (int, error)  { return 0, f.error }

func FuzzReader(f *testing.F) {
	f.Add(write(f, entries[:2]...))
	f.Add([]byte(head + "\x01\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, backup []byte) {
		if _, err := read(backup); err != nil {
			return
		}
		sum := sha256.Sum256(backup[:len(backup)-sha256.Size])
		if !bytes.HasSuffix(backup, sum[:]) {
			t.Errorf("%q was accepted without its checksum", backup)
		}
	})
}
