//go:build unix

package crashtest

import (
	"net"
	"os"
	"syscall"
)

// killGroup kills a worker and all that it started.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // an error: nobody is left

// closedPort is a port on loopback that refuses connections until listen is called.
type closedPort struct {
	fd   int
	addr string
}

// reservePort takes a free one.
func reservePort() (closedPort, error) {
	syscall.ForkLock.RLock() // no worker that is started just now inherits it
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return closedPort{}, os.NewSyscallError("socket", err)
	}
	p := closedPort{fd: fd}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		p.close()
		return closedPort{}, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		p.close()
		return closedPort{}, os.NewSyscallError("getsockname", err)
	}
	at := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
	p.addr = at.String()
	return p, nil
}

// listen accepts connections from now on.
func (p closedPort) listen() (net.Listener, error) {
	f := os.NewFile(uintptr(p.fd), "upstream")
	defer f.Close()
	if err := syscall.Listen(p.fd, 128); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return net.FileListener(f)
}

func (p closedPort) close() { _ = syscall.Close(p.fd) }
