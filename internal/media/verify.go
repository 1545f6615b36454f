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

// wrong returns the inconsistencies of a record.
func (r *record) wrong() (list []string) {
	report := func(wrong bool, what string) {
		if wrong {
			list = append(list, what)
		}
	}
	_, known := kindOf(r.Type)
	report(!IsName(r.Name), "its name is not valid")
	report(r.Index < 0 || r.Task == "", "it is not the result of a task")
	report(r.kept() && !known, "its type is not served")
	report(r.kept() && (r.MediaName == "" || r.Size <= 0), "it is kept without a name or without content")
	report(r.kept() && (r.GoneAt < r.Kept || r.GoneAt > r.Kept+Retention.Milliseconds()), "its expiry does not match the retention of files")
	report(r.kept() && r.Draft != progress{}, "it is kept, and its copy is not complete")
	report(!r.kept() && (r.End == 0 || r.GoneAt != 0), "it is not kept, and its draft has no end")
	return list
}
