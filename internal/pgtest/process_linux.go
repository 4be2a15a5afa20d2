package pgtest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// memoryDir returns a directory that is kept in memory, where a server starts and copies databases several times faster than on a
// disk, or "" where there is none with room for one. Docker's default of 64 MB is not enough.
func memoryDir() string {
	const dir, room = "/dev/shm", 1 << 30
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil || stat.Bavail*uint64(stat.Bsize) < room {
		return ""
	}
	return dir
}

// dieWithParent has a process end with the thread that started it. Not by SIGKILL: a server should have the time to take its own children along.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

// processAttributes returns who Postgres's programs run as: they refuse root.
func processAttributes() (uid, gid int, attr *syscall.SysProcAttr, err error) {
	attr = new(syscall.SysProcAttr)
	uid, gid = os.Geteuid(), os.Getegid()
	if uid != 0 {
		return uid, gid, attr, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		return 0, 0, nil, fmt.Errorf("postgres does not run as root, and there is no other user for it: %w", err)
	}
	if uid, err = strconv.Atoi(account.Uid); err != nil {
		return 0, 0, nil, err
	}
	if gid, err = strconv.Atoi(account.Gid); err != nil {
		return 0, 0, nil, err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return uid, gid, attr, nil
}
