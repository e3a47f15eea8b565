package session

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/worker/session/sessiontest"
)

// flood opens many connections to the socket, reports as its step how many stay open, and keeps them.
func flood(t *sessiontest.Trial) error {
	var conns []net.Conn
	for range 2000 {
		conn, err := net.Dial("unix", os.Getenv(EnvStream)) //nolint:noctx // ends with the process
		if err != nil {
			continue
		}
		if open, err := staysOpen(conn, time.Now().Add(20*time.Millisecond)); err != nil {
			return err
		} else if open {
			conns = append(conns, conn)
		}
	}
	if err := t.Report(int64(stillOpen(conns)), nil); err != nil {
		return err
	}
	_, err := t.Wait()
	return err
}

// stillOpen returns how many of the connections stay open. A busy worker closes those that are too many some time later.
func stillOpen(conns []net.Conn) int {
	closed := make(chan struct{}, len(conns))
	for _, conn := range conns {
		go func() {
			if open, err := staysOpen(conn, time.Now().Add(patience)); err == nil && !open {
				closed <- struct{}{}
			}
		}()
	}
	open, enough := len(conns), time.After(patience)
	for open > maxConns {
		select {
		case <-closed:
			open--
		case <-enough:
			return open
		}
	}
	return open
}

// staysOpen reports whether a connection without traffic stays open until a deadline.
func staysOpen(conn net.Conn, until time.Time) (bool, error) {
	if err := conn.SetReadDeadline(until); err != nil {
		return false, err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return os.IsTimeout(err), nil
}

// A trial that opens many connections keeps a few and gets one note, and other trials are not affected.
func TestConnectionsOfATrialAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, nil)
	flooder, other := newRecorder(), newRecorder()
	sp := spec()
	flooding := begin(t, s, sp, assignment(1, 1, "flood", t.TempDir()), flooder)
	flooder.await(t, "note: it opens more connections to its worker than the 16 that are allowed at a time; further ones are closed at once")
	var open int64
	select {
	case got := <-flooder.events:
		if _, err := fmt.Sscanf(got, "report %d", &open); err != nil || open > maxConns {
			t.Errorf("got %q: of 2,000 connections at most %d may stay open", got, maxConns)
		}
	case <-time.After(patience):
		t.Fatal("the trial that floods has not reported")
	}
	sp.Devices, sp.Function = []int32{7}, "other"
	begin(t, s, sp, assignment(2, 1, "steps", t.TempDir()), other).Kill()
	flooding.Kill()
	flooder.await(t, "ended")
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	if n := s.conns.users[uint32(os.Geteuid())]; n > 2*maxConns {
		t.Errorf("%d connections are counted after the end of the trial", n)
	}
}

// A connection that sends nothing, or too much, without attaching is closed.
func TestConnectionsThatDoNotAttachAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		given := 0
		c := newPeerConn(ours, credentials{}, func() { given++ })
		began := time.Now()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("something was read")
		}
		if waited := time.Since(began); waited != helloGrace {
			t.Errorf("it was closed after %s, want %s", waited, helloGrace)
		}
		_, _ = c.Close(), c.Close()
		if given != 1 {
			t.Errorf("the connection was released %d times", given)
		}
		_ = theirs.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := newPeerConn(ours, credentials{}, func() {})
		go func() {
			_, _ = io.Copy(theirs, strings.NewReader(strings.Repeat("x", helloBytes+1)))
			_ = theirs.Close()
		}()
		if n, err := io.Copy(io.Discard, c); err != errTooMuch || n > helloBytes { //nolint:errorlint // it is not wrapped
			t.Errorf("%d bytes were read: %v", n, err)
		}
		_ = c.Close()
		_ = theirs.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := newPeerConn(ours, credentials{}, func() {})
		c.attached()
		time.AfterFunc(time.Hour, func() { _, _ = theirs.Write([]byte("x")) })
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Errorf("an attached connection is closed: %v", err)
		}
		_, _ = c.Close(), theirs.Close()
	})
}

// scarce is a listener that has no free descriptors at first.
type scarce struct {
	net.Listener
	failures int
}

func (l *scarce) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return nil, net.ErrClosed
}

func TestAcceptOutlivesAWantOfDescriptors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &scarce{failures: 20}
		l := &peerListener{Listener: inner, srv: &Server{cfg: Config{Logger: slog.New(slog.DiscardHandler)}}, closed: make(chan struct{})}
		if _, err := l.Accept(); err != net.ErrClosed || inner.failures > 0 { //nolint:errorlint // it is not wrapped
			t.Errorf("it gave up after %d failures: %v", 20-inner.failures, err)
		}
	})
}
