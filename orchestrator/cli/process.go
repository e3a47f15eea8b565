package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// process runs servers and workers in this process.
type process struct {
	*client
	// version is the version of this build.
	version    string
	interrupts interrupts
}

// untilDone runs a server or worker until it ends by itself or is interrupted by Ctrl-C, which is not an error.
func (p *process) untilDone(ctx context.Context, run func(context.Context) error) error {
	ctx, stop := p.interrupts.until(ctx)
	defer stop()
	told := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errInterrupted) {
			p.notef("stopping once trials have saved; Ctrl-C again ends at once")
		}
	})
	defer told()
	err := run(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// interrupts starts to deliver Ctrl-C and SIGTERM until stop is called.
type interrupts func() (signals <-chan os.Signal, stop func())

// osInterrupts delivers the process's signals.
func osInterrupts() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c, func() { signal.Stop(c) }
}

// until returns a context that ends with the first Ctrl-C or SIGTERM. stop waits for its goroutine.
func (i interrupts) until(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, release := i()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-signals:
			cancel(errInterrupted)
			// The next signal kills the process even if the command hangs.
			release()
		case <-ctx.Done():
			release()
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}
