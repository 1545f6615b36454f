package media

import (
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// record is a file at media/<name>. Times are Unix milliseconds; zero is none.
type record struct {
	Name    string `json:"name"`
	Task    string `json:"task"`
	Index   int    `json:"index"` // of the result among those of the task
	Key     string `json:"key"`
	User    string `json:"user"`
	Created int64  `json:"created"` // when the name was drawn

	// Draft is how far the copy is; the zero value when it is made.
	Draft progress `json:"draft,omitzero"`

	// What follows is set when the file is kept.
	MediaName string `json:"media_name,omitempty"`
	Type      string `json:"type,omitempty"`
	Size      int64  `json:"size,omitempty"`
	Kept      int64  `json:"kept,omitempty"`
	GoneAt    int64  `json:"gone_at,omitempty"` // from then on it is refused

	// End is when the file, or the draft, is to be removed; zero when it has been.
	End int64 `json:"end,omitempty"`

	fresh bool // the name was drawn just now: nothing lies there
}

// progress is what it takes to go on with a draft.
type progress struct {
	Durable   int64  `json:"durable,omitempty"`   // bytes that are there
	Source    string `json:"source,omitempty"`    // hash of the address they came from
	Validator string `json:"validator,omitempty"` // of If-Range
	Total     int64  `json:"total,omitempty"`     // size of the result; -1: not told
	Type      string `json:"type,omitempty"`      // the media type, by the first bytes

	// Refused is the bound that the result was larger than. It is not asked for
	// again unless the bound is another.
	Refused int64 `json:"refused,omitempty"`
}

// kept tells whether the file is there for good, until it is gone.
func (r *record) kept() bool { return r.Kept != 0 }

// files are the records of files, and what leads to them.
var files = table.Table[record]{
	Name:    "media",
	Key:     func(r *record) table.Key { return table.Key{r.Name} },
	Indexes: []*table.Index[record]{&ofTask, &ending, &past},
	Check:   (*record).wrong,
}

var (
	// ofTask holds the results of a task in their order.
	ofTask = table.Index[record]{
		Name:   "mediatask",
		Fields: func(r *record) table.Key { return table.Key{r.Task, int64(r.Index)} },
	}

	// ending holds what is to be removed, by when.
	ending = table.Index[record]{Name: "mediaend", Fields: func(r *record) table.Key {
		if r.End == 0 {
			return nil
		}
		return table.Key{r.End}
	}}

	// past holds the kept files that were removed, by when they were kept.
	past = table.Index[record]{Name: "mediapast", Fields: func(r *record) table.Key {
		if r.End != 0 || !r.kept() {
			return nil
		}
		return table.Key{r.Kept}
	}}
)

// resultsOf returns the records of a task's results, in their order.
func resultsOf(r storage.Reader, task string) (list []*record, err error) {
	for rec, err := range files.Scan(r, ofTask.Under(task)) {
		if err != nil {
			return nil, err
		}
		list = append(list, rec)
	}
	return list, nil
}

// view and update are those of the store; see [fault.OfStore] for their errors.
func (a *Archive) view(ctx context.Context, fn func(storage.Reader) error) error {
	return fault.OfStore(a.store.View(ctx, fn))
}

func (a *Archive) update(ctx context.Context, fn func(storage.Txn) error) error {
	return fault.OfStore(a.store.Update(ctx, fn))
}

func milliseconds(t time.Time) int64 { return t.UnixMilli() }

func (a *Archive) now() int64 { return milliseconds(a.store.Now()) }
