package control

import (
	"context"

	"github.com/outbid-dev/outbid/orchestrator/state"
)

// queue holds the inputs of the loop until it takes them. It is safe for concurrent use.
type queue struct {
	in chan Input
	// done is closed when the loop has ended.
	done chan struct{}
	// leading ends when this server no longer leads.
	leading context.Context //nolint:containedctx // it outlives every call
}

func newQueue(leading context.Context) *queue {
	return &queue{in: make(chan Input, inputsPerStep), done: make(chan struct{}), leading: leading}
}

// send puts an input into the queue.
func (q *queue) send(ctx context.Context, in Input) error {
	select {
	case q.in <- in:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-q.done:
		return state.ErrStopping
	}
}

// put puts an input into the queue unless the loop has ended or this server no longer leads. Nobody waits for its answer.
func (q *queue) put(in Input) {
	_ = q.send(q.leading, in)
}

// do queues an input and waits for its answer.
func do[T any](ctx context.Context, q *queue, input func(done func(T, error)) Input) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	var none T
	if err := q.send(ctx, input(func(v T, err error) { answers <- answer{v, err} })); err != nil {
		return none, err
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-q.done:
		select {
		case a := <-answers:
			return a.value, a.err
		default:
			return none, state.ErrStopping
		}
	}
}
