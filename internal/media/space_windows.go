package media

import "golang.org/x/sys/windows"

// spaceAt returns the number of bytes that this user may still write at path,
// and the size of that disk.
func spaceAt(path string) (free, size uint64, err error) {
	at, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, 0, err
	}
	err = windows.GetDiskFreeSpaceEx(at, &free, &size, nil)
	return free, size, err
}
