package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
)

// conn is a light HTTP/1.1 client: one kept connection, requests written from a buffer, answers read without parsing
// what nobody looks at. The load generator shares its machine with what it measures.
type conn struct {
	io.ReadWriteCloser
	in  *bufio.Reader
	out []byte
}

// dial opens a connection. One that blocks a thread of its own while it waits, as pgbench's do, is the quicker to notice an answer,
// where there are few.
func dial(address string, blocks bool) (*conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	var through io.ReadWriteCloser = c
	if blocks {
		file, err := c.(*net.TCPConn).File()
		c.Close()
		if err != nil {
			return nil, err
		}
		file.Fd() // from here on it blocks
		through = file
	}
	return &conn{ReadWriteCloser: through, in: bufio.NewReaderSize(through, 64<<10)}, nil
}

// post sends a JSON body and returns the status.
func (c *conn) post(path string, body []byte) (int, error) {
	c.out = append(c.out[:0], "POST "...)
	c.out = append(c.out, path...)
	c.out = append(c.out, " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
	return c.roundTrip()
}

func (c *conn) get(path string) (int, error) {
	c.out = append(c.out[:0], "GET "...)
	c.out = append(c.out, path...)
	c.out = append(c.out, " HTTP/1.1\r\nHost: bench\r\n\r\n"...)
	return c.roundTrip()
}

var contentLength = []byte("Content-Length: ")

func (c *conn) roundTrip() (int, error) {
	if _, err := c.Write(c.out); err != nil {
		return 0, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, fmt.Errorf("answer begins with %q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return 0, err
	}
	length := 0
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) == 2 {
			break
		}
		if n, ok := bytes.CutPrefix(line, contentLength); ok {
			if length, err = strconv.Atoi(string(n[:len(n)-2])); err != nil {
				return 0, err
			}
		}
	}
	_, err = io.CopyN(io.Discard, c.in, int64(length))
	return status, err
}
