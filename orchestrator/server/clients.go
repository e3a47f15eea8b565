package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A server of one's own (`up --while-clients`, which is what the SDK starts) ends with its last client. Every client on
// this machine that finds a server by its data directory holds a shared lock on the file DATA/clients for as long as it
// lives. The kernel gives the lock back when a process ends, however it ends. The server looks whether it could have
// the file to itself: then nobody is left. It keeps the lock while it ends, by which clients that come then know that
// they must wait and start another.

const (
	// clientsPoll is how often the server looks whether a client is left.
	clientsPoll = 200 * time.Millisecond
	// firstClient is how long a server that was started by hand waits for its first client.
	firstClient = time.Minute
	// keepWord and the server's process id in DATA/clients make it stay when its last client goes.
	keepWord = "keep %d\n"
)

// ErrNoClients ends a server whose last client has gone.
var ErrNoClients = errors.New("the last client has gone")

// ClientsPath is the file that the clients of a data directory's server hold.
func ClientsPath(data string) string { return filepath.Join(data, "clients") }

// WhileClients returns a context that ends, with the cause ErrNoClients, when the last client has gone; gone is called
// before. now reads the wall clock. stop gives the file back.
func WhileClients(parent context.Context, data string, now func() time.Time, gone func()) (
	ctx context.Context, stop func(), err error,
) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, nil, badField("Data", "%w", trimOp(err))
	}
	file, err := os.OpenFile(ClientsPath(data), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, badField("WhileClients", "%w", trimOp(err))
	}
	ctx, cancel := context.WithCancelCause(parent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if awaitClientsGone(ctx, file, now().Add(firstClient), now) {
			gone()
			cancel(ErrNoClients)
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
		_ = file.Close()
	}, nil
}

// awaitClientsGone returns true, holding the file's lock, once no client is left. It waits for the first one until
// first. It returns false if ctx ends, or if a client asked the server to stay.
func awaitClientsGone(ctx context.Context, file *os.File, first time.Time, now func() time.Time) bool {
	tick := time.NewTicker(clientsPoll)
	defer tick.Stop()
	came := false
	for {
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			came = true
		} else if came || now().After(first) {
			if !keepAsked(file) {
				return true
			}
			_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
			return false
		} else {
			_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// keepAsked says whether a client wrote that the server is to stay.
func keepAsked(file *os.File) bool {
	text := make([]byte, 64)
	n, _ := file.ReadAt(text, 0)
	return strings.HasPrefix(string(text[:n]), fmt.Sprintf(keepWord, os.Getpid()))
}

// Hold keeps a server that ends with its last client from ending while this command runs, as the lock is held
// until the file is closed. nil if there is no such server, or if it is ending already.
func Hold(data string) *os.File {
	file, err := os.Open(ClientsPath(data))
	if err != nil {
		return nil
	}
	if unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
		_ = file.Close()
		return nil
	}
	return file
}
