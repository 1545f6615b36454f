//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package transport

import "syscall"

// canPeek reports whether an idle connection can be examined. Without that no connection may be
// used again, so nothing takes the short way.
const canPeek = true

// isQuiet reports whether a socket is open and nothing has arrived on it. It neither blocks nor
// takes bytes from the socket.
func isQuiet(fd uintptr) bool {
	var b [1]byte
	for {
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err != syscall.EINTR { //nolint:errorlint // a system call returns the number itself
			return err == syscall.EAGAIN //nolint:errorlint // see above
		}
	}
}
