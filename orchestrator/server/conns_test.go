package server

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestConnectionsOfAnAddressAreBounded checks that idle connections above an address's limit are closed, and that
// closed ones make room for others.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := boundConns(inner)
	l.all, l.each = 5, 3
	accepted := make(chan net.Conn, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	var held []net.Conn
	for range 10 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	for _, conn := range held[l.each:] {
		if _, err := io.ReadFull(conn, make([]byte, 1)); err == nil {
			t.Error("a connection too many is served")
		}
		_ = conn.Close()
	}
	if n := len(accepted); n != l.each {
		t.Errorf("%d connections were accepted, want %d", n, l.each)
	}
	if err := (<-accepted).Close(); err != nil {
		t.Error(err)
	}
	again, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for range l.each {
		conn := <-accepted
		_ = conn.Close()
	}
	_, _ = again.Close(), held[0].Close()
	if err := errors.Join(l.SetDeadline(time.Unix(1, 0)), l.Close()); err != nil {
		t.Error(err)
	}
	for range accepted { //nolint:revive // until the listener is closed
	}
}
