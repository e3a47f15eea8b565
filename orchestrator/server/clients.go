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

// A server started with `up --while-clients`, like those of the SDK, stops with its last client. Every local client
// that finds a server by its data directory holds a shared lock on the file DATA/clients while it lives. The kernel
// releases the lock when the process ends in any way. The server polls for an exclusive lock; if it gets one, no client
// is left. It keeps the lock while it stops, so that new clients know that they must wait and start another server.

const (
	// clientsPoll is how often the server checks for clients.
	clientsPoll = 200 * time.Millisecond
	// firstClient is how long a server that was started by hand waits for its first client.
	firstClient = time.Minute
	// keepWord with the server's process id in DATA/clients makes the server stay when its last client goes.
	keepWord = "keep %d\n"
)

// ErrNoClients is the cause of the end of a server whose last client has gone.
var ErrNoClients = errors.New("the last client has gone")

// ClientsPath returns the file that the clients of a data directory's server lock.
func ClientsPath(data string) string { return filepath.Join(data, "clients") }

// WhileClients returns a context that ends, with the cause ErrNoClients, when the last client has gone. It calls gone
// first. now reads the wall clock. stop releases the file.
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

// awaitClientsGone returns true, with the file locked, once no client is left. It waits for the first client until
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

// keepAsked reports whether a client asked the server to stay.
func keepAsked(file *os.File) bool {
	text := make([]byte, 64)
	n, _ := file.ReadAt(text, 0)
	return strings.HasPrefix(string(text[:n]), fmt.Sprintf(keepWord, os.Getpid()))
}

// Hold keeps a server with --while-clients running until the returned file is closed. It returns nil if such a server
// does not exist or is already stopping.
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
