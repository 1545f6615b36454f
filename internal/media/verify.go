package media

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Verify checks the file records of a store and their index keys. It does not
// read the files. It calls problem for each inconsistency. r is one snapshot.
// The error is that of reading.
func Verify(r storage.Reader, problem func(format string, args ...any)) error {
	return files.Verify(r, (*record).String, problem)
}

// String identifies a file by its task, because the file name grants access.
func (r *record) String() string { return fmt.Sprintf("file %d of task %s", r.Index+1, r.Task) }

// wrong returns what is inconsistent in a record.
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
