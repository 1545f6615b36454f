package media

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Verify looks whether the files of a store add up: that what a record says fits
// together, and that each key which leads to a file is there, and leads to one.
// It looks at the store alone and not at the files. problem is called for each
// thing that does not add up. r is one snapshot; the error is that of reading.
func Verify(r storage.Reader, problem func(format string, args ...any)) error {
	return files.Verify(r, (*record).String, problem)
}

// String names a file by its task: its own name is a way in.
func (r *record) String() string { return fmt.Sprintf("file %d of task %s", r.Index+1, r.Task) }

// wrong is what of a record does not fit together.
func (r *record) wrong() (list []string) {
	tell := func(wrong bool, what string) {
		if wrong {
			list = append(list, what)
		}
	}
	_, known := kindOf(r.Type)
	tell(!IsName(r.Name), "its name is none that this gateway gives")
	tell(r.Index < 0 || r.Task == "", "it is no result of a task")
	tell(r.kept() && !known, "it is of a type that is not given out")
	tell(r.kept() && (r.MediaName == "" || r.Size <= 0), "it is kept without a name or without content")
	tell(r.kept() && r.GoneAt != r.Kept+Retention.Milliseconds(), "it is not kept for the time that files are")
	tell(r.kept() && r.Draft != progress{}, "it is kept and still copied")
	tell(!r.kept() && (r.End == 0 || r.GoneAt != 0), "it is not kept, and its draft has no end")
	return list
}
