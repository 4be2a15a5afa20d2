package store

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// cutter is a way to the server that a test can cut.
type cutter struct {
	server string
	answer atomic.Bool // cut when the next answer comes: the server has done what was asked
	ask    atomic.Bool // cut when the next request comes: the server never hears of it
}

func cutOff(t *testing.T, databaseURL string) (*cutter, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{server: u.Host}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { c.forward(conn) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); open.Wait() })
	u.Host = listener.Addr().String()
	return c, u.String()
}

func (c *cutter) forward(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := new(net.Dialer).Dial("tcp", c.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var both sync.WaitGroup
	both.Go(func() { pass(client, server, &c.ask) })
	pass(server, client, &c.answer)
	both.Wait()
}

func pass(from, to net.Conn, cut *atomic.Bool) {
	defer func() { _ = from.Close() }()
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil || cut.Swap(false) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}
