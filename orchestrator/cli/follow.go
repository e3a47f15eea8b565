package cli

import (
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
	// update shows the changes. u is nil if only time has passed or the server was lost.
	update(p *progress, u *outbidv1.WatchSweepResponse) error
	// hide removes the moving lines from the screen so that something else can be printed. The next update restores
	// them.
	hide()
	// result shows how the sweep ended.
	result(p *progress) error
}

// following is one run of the follower. One loop handles updates, Ctrl-C and time.
type following struct {
	console *console
	conn    *connection
	id      string
	show    presenter
	model   *progress
	signals <-chan os.Signal
	// ask is set if this command started the sweep and can ask the user on Ctrl-C.
	ask bool
	// leaving is set if Ctrl-C prints how to come back when the user is not asked.
	leaving bool
}

// follow shows a sweep until it ends. It returns nil if the sweep is done, or an error with the exit code.
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

// loop handles one event at a time until the sweep ends, an error occurs, or the user leaves.
func (f *following) loop(ctx context.Context, events <-chan watchEvent) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case e := <-events:
			done, err := f.handleEvent(e)
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

// handleEvent handles an event of the stream.
func (f *following) handleEvent(e watchEvent) (done bool, err error) {
	switch {
	case e.err != nil && !unreachableError(e.err):
		return false, e.err
	case e.err != nil:
		if f.model.lost.IsZero() {
			f.model.lost = f.console.now()
		}
		if f.model.sweep == nil {
			return false, nil
		}
		return false, f.show.update(f.model, nil)
	}
	f.model.update(e.update, f.console.now())
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
		return true, exitSilently(code)
	}
	return true, nil
}

// interrupted handles Ctrl-C. done is set if the sweep ended while the user was asked.
func (f *following) interrupted(ctx context.Context, s os.Signal, events <-chan watchEvent) (done bool, err error) {
	if !f.ask || s == syscall.SIGTERM {
		if f.leaving {
			f.leave()
		}
		return false, exitSilently(exitInterrupted)
	}
	_, _ = io.WriteString(f.console.stderr, "\nLeave "+f.id+" running? [Y = yes, p = save and pause it, s = stop it, w = keep watching] ")
	answers := f.console.readLine()
	for {
		select {
		case answer := <-answers:
			return false, f.runAnswer(ctx, answer)
		case <-f.signals:
			f.console.notef("")
			f.leave()
			return false, exitSilently(exitInterrupted)
		case e := <-events:
			// The sweep continues while the user decides; only its end interrupts the question.
			if e.err == nil && sweepOver(e.update.GetSweep().GetState()) {
				f.console.notef("")
				return f.handleEvent(e)
			}
			if e.err == nil {
				f.model.update(e.update, f.console.now())
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// runAnswer executes the user's choice.
func (f *following) runAnswer(ctx context.Context, answer string) error {
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "w", "watch":
		return nil
	case "p", "pause":
		if _, err := f.conn.ControlSweep(ctx, &outbidv1.ControlSweepRequest{
			Sweep: f.id, Command: outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE,
		}); err != nil {
			return err
		}
		f.console.notef("%s is paused, its trials save and end: continue with 'outbid resume %s'", f.id, f.id)
		return exitSilently(exitInterrupted)
	case "s", "stop", "n", "no":
		_, err := f.conn.ControlSweep(ctx, &outbidv1.ControlSweepRequest{
			Sweep: f.id, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP,
		})
		return err
	default:
		f.leave()
		return exitSilently(exitInterrupted)
	}
}

// leave prints how to come back.
func (f *following) leave() {
	f.console.notef("%s continues: follow it with 'outbid watch %s', stop it with 'outbid stop %s'", f.id, f.id, f.id)
	if f.conn.held != nil {
		f.console.notef("its server stops with the last program that uses it; when it is restarted ('outbid up --data %s'), the sweep continues",
			f.conn.target.data)
	}
}

// watchEvent is an update, or the loss of the stream.
type watchEvent struct {
	update *outbidv1.WatchSweepResponse
	err    error
}

const (
	// firstRetry and lastRetry bound the delay before the client reconnects.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 3 * time.Second
)

// receive watches a sweep until it is over or ctx ends, and reconnects whenever the server is lost.
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

// receiveOnce reads one stream. over is set if the sweep's end was delivered.
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
