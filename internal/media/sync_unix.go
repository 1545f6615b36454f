//go:build unix

package media

import (
	"errors"
	"os"
)

// syncDirectory makes the names in a directory durable.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
