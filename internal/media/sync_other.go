//go:build !unix

package media

// syncDirectory does nothing: Windows keeps names with the files.
func syncDirectory(string) error { return nil }
