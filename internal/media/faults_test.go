package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// TestFailedCommits lets each commit of a copy fail in each way. The repeated Keep
// must result in one file with one name.
func TestFailedCommits(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(12<<20))
		w.allow(o)
		for kind, fault := range map[string]storagetest.Fault{
			"lost": storagetest.UnknownLost, "committed": storagetest.UnknownCommitted, "full": storagetest.LowSpace,
			"sync": storagetest.SyncFailed, "halted": storagetest.Halted,
		} {
			for at := range 4 { // the names, two saves of progress, the end
				w.draftStep = 5 << 20
				w.faulty.Plan(storagetest.After(at, fault)...)
				k := keeping(fmt.Sprintf("task_%s_%d", kind, at), o.URL)
				if _, err := w.Keep(t.Context(), k); err == nil {
					t.Fatalf("%s: Keep returned no error", k.Task)
				}
				if w.store.Err() != nil || fault == storagetest.Halted {
					w.start()
				}
				link := w.keep(k)[0]
				w.checkContent(link, o.content)
				if name, _ := parts(t, link); name != w.nameOf(k.Task, 0) {
					t.Errorf("%s: the link has the name %s, the record has another", k.Task, name)
				}
				w.verify()
			}
		}
		list, _, err := w.place.List(t.Context(), "", 100)
		if err != nil || len(list) != 20 {
			t.Errorf("%d files and drafts of 20 tasks, %v", len(list), err)
		}
	})
}

// faultyPlace returns an error at one step.
type faultyPlace struct {
	Place
	step string
}

var errPlace = errors.New("input/output error")

func (f *faultyPlace) at(step string) error {
	if f.step == step {
		f.step = ""
		return errPlace
	}
	return nil
}

func (f *faultyPlace) Size(ctx context.Context, name string) (int64, error) {
	if err := f.at("size"); err != nil {
		return 0, err
	}
	return f.Place.Size(ctx, name)
}

func (f *faultyPlace) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	if err := f.at("open"); err != nil {
		return nil, err
	}
	return f.Place.Open(ctx, name)
}

func (f *faultyPlace) Draft(ctx context.Context, name string, from int64) (Draft, error) {
	if err := f.at("draft"); err != nil {
		return nil, err
	}
	d, err := f.Place.Draft(ctx, name, from)
	return &faultyDraft{d, f}, err
}

type faultyDraft struct {
	Draft
	place *faultyPlace
}

func (d *faultyDraft) Write(p []byte) (int, error) {
	if err := d.place.at("write"); err != nil {
		return 0, err
	}
	return d.Draft.Write(p)
}

func (d *faultyDraft) Sync() (int64, error) {
	if err := d.place.at("sync"); err != nil {
		return 0, err
	}
	return d.Draft.Sync()
}

func (d *faultyDraft) Commit() error {
	if err := d.place.at("before the commit"); err != nil {
		return err
	}
	return errors.Join(d.Draft.Commit(), d.place.at("after the commit"))
}

// TestFailingPlaces checks that an error of the disk is reported and retried,
// and is never treated as a kept file.
func TestFailingPlaces(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		place := &faultyPlace{Place: w.place}
		w.serve(func(c *Config) { c.Place = place })
		o := newOrigin(t, film(12<<20))
		w.allow(o)
		w.draftStep = 5 << 20
		for _, step := range []string{"size", "draft", "write", "sync", "before the commit", "after the commit"} {
			place.step = step
			k := keeping("task_"+step, o.URL)
			if _, err := w.Keep(t.Context(), k); !errors.Is(err, errPlace) {
				t.Fatalf("%s: %v", step, err)
			}
			link := w.keep(k)[0]
			w.checkContent(link, o.content)
			name, _ := parts(t, link)
			for _, step := range []string{"size", "open"} {
				place.step = step
				if code := w.code(name); code != "503" {
					t.Errorf("a file that cannot be read: Open returns %s, want 503", code)
				}
			}
		}
		list, _, err := w.place.List(t.Context(), "", 100)
		if err != nil || len(list) != 6 {
			t.Errorf("%d files and drafts of 6 tasks, %v", len(list), err)
		}
	})
}
