//go:build linux || darwin || freebsd || dragonfly

package badger

import "syscall"

// freeSpace returns the bytes that a process without privileges may still
// write to the file system of dir.
func freeSpace(dir string) (uint64, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, err
	}
	return uint64(max(stat.Bavail, 0)) * uint64(stat.Bsize), nil //nolint:unconvert // signed on some systems
}
