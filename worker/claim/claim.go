// Package claim gives one process of a machine exclusive use of a resource, such as a GPU or a user id. A claim is a
// Unix socket: it ends with its process, however that ends, and other processes can ask it who holds the claim. On
// Linux the socket is in the kernel's abstract namespace: it has no file, and every user of the machine sees it, but
// containers with their own network do not see each other's claims. On macOS it is a file in the directory for
// temporary files, which each user has separately; the next process removes a file that a killed process left.
package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Holder identifies the holder of a claim.
type Holder struct {
	PID int `json:"pid"`
	// Dir is the directory that the holder works in.
	Dir   string    `json:"dir"`
	Since time.Time `json:"since"`
}

// String returns a text for people.
func (h Holder) String() string {
	if h.PID == 0 {
		return "an unknown process"
	}
	return fmt.Sprintf("process %d (%s, since %s)", h.PID, h.Dir, h.Since.Local().Format(time.DateTime))
}

// Held is the error for a claim that another process holds.
type Held struct {
	What string
	By   Holder
}

// Error implements error.
func (e *Held) Error() string { return fmt.Sprintf("%s is held by %s", e.What, e.By) }

// Claim is a claim of this process. Release ends it.
type Claim struct {
	listener net.Listener
	served   sync.WaitGroup
}

const (
	// answerTimeout limits the exchange about who holds a claim, on both sides.
	answerTimeout = time.Second
	// maxAnswer limits the answer, in bytes.
	maxAnswer = 4 << 10
)

// Take claims a resource in the name of dir. The error is a *Held if another process holds it.
func Take(ctx context.Context, what, dir string, now time.Time) (*Claim, error) {
	return TakeAsked(ctx, what, dir, now, func() {})
}

// TakeAsked is like Take, with a function that is called whenever another process asks for the claim. It must not
// block.
func TakeAsked(ctx context.Context, what, dir string, now time.Time, asked func()) (*Claim, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", address(what))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &Held{What: what, By: ask(ctx, what)}
	}
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", what, err)
	}
	answer, err := json.Marshal(Holder{PID: os.Getpid(), Dir: dir, Since: now})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claim %s: %w", what, err), l.Close())
	}
	c := &Claim{listener: l}
	c.served.Go(func() { c.serve(answer, asked) })
	return c, nil
}

func (c *Claim) serve(answer []byte, asked func()) {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(answerTimeout))
		_, _ = conn.Write(answer) // without an answer the other process does not learn the holder
		_ = conn.Close()
		asked()
	}
}

// Release ends the claim.
func (c *Claim) Release() error {
	err := c.listener.Close()
	c.served.Wait()
	return err
}

// ask asks who holds a claim. The result is zero if the holder does not answer.
func ask(ctx context.Context, what string) (h Holder) {
	conn, err := (&net.Dialer{Timeout: answerTimeout}).DialContext(ctx, "unix", address(what))
	if err != nil {
		return h
	}
	defer conn.Close() //nolint:errcheck // only read
	_ = conn.SetDeadline(time.Now().Add(answerTimeout))
	text, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if err != nil || json.Unmarshal(text, &h) != nil {
		return Holder{}
	}
	return h
}
