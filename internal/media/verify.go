package media

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Verify looks whether the files of a store add up: that what a record says fits
// together, and that each key which leads to a file is there, and leads to one.
// It looks at the store alone and not at the files. problem is called for each
// thing that does not add up. r is one snapshot; the error is that of reading.
func Verify(r storage.Reader, problem func(format string, args ...any)) error {
	if err := verifyRecords(r, problem); err != nil {
		return err
	}
	for _, prefix := range []string{taskPrefix, endPrefix, pastPrefix} {
		if err := verifyIndex(r, prefix, problem); err != nil {
			return err
		}
	}
	return nil
}

// verifyRecords checks each record and what leads to it.
func verifyRecords(r storage.Reader, problem func(format string, args ...any)) (failed error) {
	lo, hi := storage.Below(filePrefix)
	err := r.Scan(lo, hi, func(key, val []byte) bool {
		var rec record
		if err := storage.DecodeRecord(val, &rec); err != nil {
			problem("a file's record cannot be read: %v", err)
			return true
		}
		if string(key) != string(storage.Key(filePrefix, rec.Name)) || !IsName(rec.Name) {
			problem("file of task %s: it lies at the key of another, or of none", rec.Task)
			return true
		}
		// A name is a way in: what is told of a file is its task and its place there.
		what := fmt.Sprintf("file %d of task %s", rec.Index+1, rec.Task)
		for _, wrong := range rec.wrong() {
			problem("%s: %s", what, wrong)
		}
		for i, index := range rec.indexes() {
			value, err := r.Get(index)
			if err != nil {
				failed = err
				return false
			}
			if value == nil {
				problem("%s: a key is missing that leads to it (%d)", what, i+1)
			}
		}
		return true
	})
	if failed != nil {
		return failed
	}
	return err
}

// wrong is what of a record does not fit together.
func (r *record) wrong() (list []string) {
	tell := func(wrong bool, what string) {
		if wrong {
			list = append(list, what)
		}
	}
	_, known := kindOf(r.Type)
	tell(r.Index < 0 || r.Task == "", "it is no result of a task")
	tell(r.kept() && !known, "it is of a type that is not given out")
	tell(r.kept() && (r.MediaName == "" || r.Size <= 0), "it is kept without a name or without content")
	tell(r.kept() && r.GoneAt != r.Kept+Retention.Milliseconds(), "it is not kept for the time that files are")
	tell(r.kept() && r.Draft != progress{}, "it is kept and still copied")
	tell(!r.kept() && (r.End == 0 || r.GoneAt != 0), "it is not kept, and its draft has no end")
	return list
}

// verifyIndex checks that each key of an index leads to a record that has it.
func verifyIndex(r storage.Reader, prefix string, problem func(format string, args ...any)) (failed error) {
	lo, hi := storage.Below(prefix)
	err := r.Scan(lo, hi, func(key, _ []byte) bool {
		rec, err := read(r, nameIn(key))
		if errors.Is(err, storage.ErrUnreadable) {
			return true // it was told of
		}
		if err != nil {
			failed = err
			return false
		}
		if rec == nil || !slices.ContainsFunc(rec.indexes(), func(k []byte) bool { return bytes.Equal(k, key) }) {
			problem("a key of %s leads to no file", prefix)
		}
		return true
	})
	if failed != nil {
		return failed
	}
	return err
}
