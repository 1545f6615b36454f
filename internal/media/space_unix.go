//go:build linux || darwin || freebsd || dragonfly

package media

import "syscall"

// spaceAt returns the number of bytes that an unprivileged process may still
// write at path, and the size of that disk.
func spaceAt(path string) (free, size uint64, err error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return 0, 0, err
	}
	block := uint64(stat.Bsize)
	return uint64(max(stat.Bavail, 0)) * block, uint64(stat.Blocks) * block, nil //nolint:unconvert // signed on some systems
}
