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
	Index   int    `json:"index"` // of the result in the task
	Key     string `json:"key"`
	User    string `json:"user"`
	Created int64  `json:"created"`         // when the name was generated
	Epoch   int64  `json:"epoch,omitempty"` // of the node that copies it; zero: the store is not shared

	// Draft is the progress of the copy; the zero value when it is complete.
	Draft progress `json:"draft,omitzero"`

	// The fields below are set when the file is kept.
	MediaName string `json:"media_name,omitempty"`
	Type      string `json:"type,omitempty"`
	Size      int64  `json:"size,omitempty"`
	Kept      int64  `json:"kept,omitempty"`
	GoneAt    int64  `json:"gone_at,omitempty"` // time of expiry

	// End is when the file or the draft must be removed; zero after the removal.
	End int64 `json:"end,omitempty"`

	fresh bool // the name is new: the place has no file or draft of it
}

// progress is the state that is needed to continue a draft.
type progress struct {
	Durable   int64  `json:"durable,omitempty"`   // bytes that are durable
	Source    string `json:"source,omitempty"`    // hash of their URL
	Validator string `json:"validator,omitempty"` // of If-Range
	Total     int64  `json:"total,omitempty"`     // size of the result; -1: unknown
	Type      string `json:"type,omitempty"`      // the media type, by the first bytes

	// Refused is the size limit that the result exceeded. The result is not
	// requested again unless the limit changes.
	Refused int64 `json:"refused,omitempty"`
}

// kept reports whether the file is complete.
func (r *record) kept() bool { return r.Kept != 0 }

// files is the table of file records.
var files = table.Table[record]{
	Name:    "media",
	Key:     func(r *record) table.Key { return table.Key{r.Name} },
	Indexes: []*table.Index[record]{&ofTask, &ending, &past},
	Check:   (*record).wrong,
}

var (
	// ofTask lists the results of a task in their order.
	ofTask = table.Index[record]{
		Name:   "mediatask",
		Fields: func(r *record) table.Key { return table.Key{r.Task, int64(r.Index)} },
	}

	// ending lists the files and drafts by the time when they must be removed.
	ending = table.Index[record]{Name: "mediaend", Fields: func(r *record) table.Key {
		if r.End == 0 {
			return nil
		}
		return table.Key{r.End}
	}}

	// past lists the kept files that were removed, by the time they were kept.
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

// view and update are the methods of the store; see [fault.OfStore] for their errors.
func (a *Archive) view(ctx context.Context, fn func(storage.Reader) error) error {
	return fault.OfStore(a.store.View(ctx, fn))
}

func (a *Archive) update(ctx context.Context, fn func(storage.Txn) error) error {
	return fault.OfStore(a.store.Update(ctx, fn))
}

func milliseconds(t time.Time) int64 { return t.UnixMilli() }

func (a *Archive) now() int64 { return milliseconds(a.store.Now()) }
