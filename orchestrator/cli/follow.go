package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A presenter shows a sweep's progress.
type presenter interface {
	// update shows what changed; u is nil when only time went by or the server was lost.
	update(p *progress, u *outbidv1.WatchSweepResponse) error
	// hide takes what moves off the screen, so that something else can be written; the next update brings it back.
	hide()
	// result shows how the sweep ended.
	result(p *progress) error
}

// following is one run of the follower: it takes in updates, Ctrl-C and time in one loop.
type following struct {
	app     *app
	conn    *connection
	id      string
	show    presenter
	model   *progress
	signals <-chan os.Signal
	// ask is set if the sweep was started by this command and there is somebody to ask on Ctrl-C.
	ask bool
	// leaving says what to tell on Ctrl-C when nobody is asked; false says nothing.
	leaving bool
}

// follow shows a sweep until it ends and returns nil if it is done, or an error that carries the exit code.
func (f *following) follow(ctx context.Context) error {
	f.model = newProgress()
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watchEvent)
	received := make(chan struct{})
	go func() {
		defer close(received)
		f.conn.receive(ctx, f.id, events)
	}()
	defer func() {
		cancel()
		<-received
	}()
	err := f.loop(ctx, events)
	if err != nil {
		f.show.hide()
	}
	return err
}

// loop handles one thing at a time until the sweep ends, an error comes, or the user leaves.
func (f *following) loop(ctx context.Context, events <-chan watchEvent) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case e := <-events:
			done, err := f.take(e)
			if done || err != nil {
				return err
			}
		case <-tick.C:
			if f.model.sweep == nil {
				continue
			}
			if err := f.show.update(f.model, nil); err != nil {
				return err
			}
		case s := <-f.signals:
			f.show.hide()
			done, err := f.interrupted(ctx, s, events)
			if done || err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take handles an event of the stream.
func (f *following) take(e watchEvent) (done bool, err error) {
	switch {
	case e.err != nil && !unreachableError(e.err):
		return false, e.err
	case e.err != nil:
		if f.model.lost.IsZero() {
			f.model.lost = f.app.now()
		}
		if f.model.sweep == nil {
			return false, nil
		}
		return false, f.show.update(f.model, nil)
	}
	f.model.update(e.update, f.app.now())
	if !f.model.over() {
		return false, f.show.update(f.model, e.update)
	}
	if err := f.show.update(f.model, e.update); err != nil {
		return false, err
	}
	if err := f.show.result(f.model); err != nil {
		return false, err
	}
	if code := endCode(f.model.sweep.GetState()); code != exitOK {
		return true, silent(code)
	}
	return true, nil
}

// interrupted decides what Ctrl-C means; done is set if the sweep ended while the user was asked.
func (f *following) interrupted(ctx context.Context, s os.Signal, events <-chan watchEvent) (done bool, err error) {
	if !f.ask || s == syscall.SIGTERM {
		if f.leaving {
			f.leave()
		}
		return false, silent(exitInterrupted)
	}
	_, _ = io.WriteString(f.app.stderr, "\nLeave "+f.id+" running? [Y = yes, p = save and pause it, s = stop it, w = watch on] ")
	answers := f.app.readLine()
	for {
		select {
		case answer := <-answers:
			return false, f.answered(ctx, answer)
		case <-f.signals:
			f.app.notef("")
			f.leave()
			return false, silent(exitInterrupted)
		case e := <-events:
			// The sweep goes on while the user thinks; only its end is worth interrupting for.
			if e.err == nil && sweepOver(e.update.GetSweep().GetState()) {
				f.app.notef("")
				return f.take(e)
			}
			if e.err == nil {
				f.model.update(e.update, f.app.now())
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// answered does what the user chose.
func (f *following) answered(ctx context.Context, answer string) error {
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "w", "watch":
		return nil
	case "p", "pause":
		if _, err := f.conn.ControlSweep(ctx, &outbidv1.ControlSweepRequest{
			Sweep: f.id, Command: outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE,
		}); err != nil {
			return err
		}
		f.app.notef("%s is paused, its trials save and end: go on with 'outbid resume %s'", f.id, f.id)
		return silent(exitInterrupted)
	case "s", "stop", "n", "no":
		_, err := f.conn.ControlSweep(ctx, &outbidv1.ControlSweepRequest{
			Sweep: f.id, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP,
		})
		return err
	default:
		f.leave()
		return silent(exitInterrupted)
	}
}

// leave tells how to come back.
func (f *following) leave() {
	f.app.notef("%s goes on: follow it with 'outbid watch %s', stop it with 'outbid stop %s'", f.id, f.id, f.id)
	if f.conn.held != nil {
		f.app.notef("its server ends with the last program that uses it; started again ('outbid up --data %s'), it goes on",
			f.conn.target.data)
	}
}

// readLine reads one line from stdin. A read cannot be called off, so its goroutine may outlive the question; it ends
// with the next line or with the process.
func (a *app) readLine() <-chan string {
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		lines <- line
	}()
	return lines
}

// watchEvent is an update, or the loss of the stream.
type watchEvent struct {
	update *outbidv1.WatchSweepResponse
	err    error
}

const (
	// firstRetry and lastRetry bound the pause before the server is tried again.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 3 * time.Second
)

// receive watches a sweep until it is over or ctx ends, and comes back after every loss of the server.
func (c *connection) receive(ctx context.Context, id string, events chan<- watchEvent) {
	pause := firstRetry
	for {
		over, got, err := c.receiveOnce(ctx, id, events)
		if over || ctx.Err() != nil {
			return
		}
		if got {
			pause = firstRetry
		}
		if err != nil && !send(ctx, events, watchEvent{err: err}) {
			return
		}
		if err != nil && !unreachableError(err) {
			return
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastRetry)
		case <-ctx.Done():
			return
		}
	}
}

// receiveOnce reads one stream; over says that the sweep's end was delivered.
func (c *connection) receiveOnce(ctx context.Context, id string, events chan<- watchEvent) (over, got bool, err error) {
	stream, err := c.WatchSweep(ctx, &outbidv1.WatchSweepRequest{Sweep: id})
	if err != nil {
		return false, false, err
	}
	for {
		u, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return false, got, nil
		}
		if err != nil {
			return false, got, err
		}
		got = true
		if !send(ctx, events, watchEvent{update: u}) {
			return false, got, nil
		}
		if sweepOver(u.GetSweep().GetState()) {
			return true, got, nil
		}
	}
}

func send(ctx context.Context, events chan<- watchEvent, e watchEvent) bool {
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
