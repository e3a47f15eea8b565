// Package claim lets one process of a machine hold something that the others then leave alone, such as a GPU or a user
// id. A claim is a Unix socket: it ends with its process however that ends, and whoever finds it taken can ask it who
// holds it. On Linux it is in the kernel's abstract namespace: it has no file, and every user of the machine sees it, but
// containers that have a network of their own do not see each other's claims. On macOS it is a file in the directory for
// temporary files, which each user has for himself; one that a killed process left is removed by the next.
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

// Holder is who holds a claim.
type Holder struct {
	PID int `json:"pid"`
	// Dir is the directory that it works in.
	Dir   string    `json:"dir"`
	Since time.Time `json:"since"`
}

// String says it for people.
func (h Holder) String() string {
	if h.PID == 0 {
		return "a process that does not say which"
	}
	return fmt.Sprintf("process %d (%s, since %s)", h.PID, h.Dir, h.Since.Local().Format(time.DateTime))
}

// Held is the error of a claim that another process has.
type Held struct {
	What string
	By   Holder
}

// Error implements error.
func (e *Held) Error() string { return fmt.Sprintf("%s is held by %s", e.What, e.By) }

// Claim is something held. Release it.
type Claim struct {
	listener net.Listener
	served   sync.WaitGroup
}

const (
	// answerTimeout bounds what asks, and what answers, who holds a claim.
	answerTimeout = time.Second
	// maxAnswer bounds the answer, in bytes.
	maxAnswer = 4 << 10
)

// Take claims what is named, in the name of dir. The error is a *Held if another process has it.
func Take(ctx context.Context, what, dir string, now time.Time) (*Claim, error) {
	return TakeAsked(ctx, what, dir, now, func() {})
}

// TakeAsked is Take with a function that is called, without blocking, whenever another process asks for the claim.
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
		_, _ = conn.Write(answer) // who asks learns less, and that is all
		_ = conn.Close()
		asked()
	}
}

// Release gives it back.
func (c *Claim) Release() error {
	err := c.listener.Close()
	c.served.Wait()
	return err
}

// ask learns who holds a claim, as far as it says.
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
