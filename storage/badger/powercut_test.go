package badger

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

// image is a directory after a power failure: file contents without trailing
// zeros, and file sizes.
type image map[string]struct {
	content []byte
	size    int64
}

func imageOf(t *testing.T, dir string) image {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	img := make(image)
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		file := img[entry.Name()]
		file.size = int64(len(content))
		file.content = bytes.Clone(bytes.TrimRight(content, "\x00"))
		img[entry.Name()] = file
	}
	return img
}

// write writes the image to a new directory, with a different content and size
// of the file name.
func (img image) write(t *testing.T, name string, content []byte, size int64) string {
	t.Helper()
	dir := t.TempDir()
	for file, was := range img {
		if file == name {
			was.content, was.size = content, size
		}
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, was.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, was.size); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPowerCut cuts the log of the memtable at every position of an
// unacknowledged commit. Earlier commits remain, that one is present completely
// or not at all, and the store works.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	commit := func(e *engine, n int) error {
		return e.Update(t.Context(), func(tx storage.Txn) error {
			for _, key := range []string{"a", "b", "c"} {
				if err := tx.Set([]byte(key), fmt.Appendf(nil, "%s in commit %d", key, n), never); err != nil {
					return err
				}
			}
			return nil
		})
	}
	c := testConfig(t.TempDir())
	e := openWith(t, c)
	const log = "00001" + memtableLog
	for n := range 2 {
		if err := commit(e, n); err != nil {
			t.Fatal(err)
		}
	}
	before := imageOf(t, c.dir)[log]
	if err := commit(e, 2); err != nil {
		t.Fatal(err)
	}
	img := imageOf(t, c.dir)
	after := img[log]
	if !bytes.HasPrefix(after.content, before.content) || len(after.content) < len(before.content)+50 {
		t.Fatalf("the log grew from %d to %d bytes", len(before.content), len(after.content))
	}

	acked, end := len(before.content), len(after.content)
	lost, kept := 0, 0
	for cut := acked; cut <= end; cut = min(cut+13, max(end, cut+1)) {
		withGap := bytes.Clone(after.content)
		clear(withGap[acked:cut])
		for name, dir := range map[string]string{
			"the rest is zero":          img.write(t, log, after.content[:cut], after.size),
			"the file ends there":       img.write(t, log, after.content[:cut], int64(cut)),
			"only the rest was written": img.write(t, log, withGap, after.size),
		} {
			e, err := open(func() config { c := c; c.dir = dir; return c }())
			if err != nil {
				t.Fatalf("cut at %d of %d to %d, %s: %v", cut, acked, end, name, err)
			}
			n := 1
			if bytes.HasSuffix(get(t, e, "a"), []byte("2")) {
				n = 2
				kept++
			} else {
				lost++
			}
			for _, key := range []string{"a", "b", "c"} {
				if got, want := get(t, e, key), fmt.Sprintf("%s in commit %d", key, n); string(got) != want {
					t.Errorf("cut at %d of %d to %d, %s: %q, want %q", cut, acked, end, name, got, want)
				}
			}
			if err := commit(e, 3); err != nil {
				t.Error(err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if lost == 0 || kept == 0 {
		t.Errorf("the cut commit was lost %d and kept %d times; both must happen", lost, kept)
	}
}
