//go:build unix

package postgrestest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account returns the user as whom the server runs if the test is root, whom PostgreSQL
// refuses; nil otherwise.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres or nobody")
}

// giveAway makes a directory the server's own.
func giveAway(dir string) error {
	a, err := account()
	if err != nil || a == nil {
		return err
	}
	return os.Chown(dir, int(a.Uid), int(a.Gid))
}

// drop makes a command run as the server's user.
func drop(cmd *exec.Cmd) {
	if a, err := account(); err == nil && a != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a}
	}
}
