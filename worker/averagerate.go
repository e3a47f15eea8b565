package worker

import (
	"context"
	"io"

	"golang.org/x/time/rate"

	"github.com/outbid-dev/outbid/orchestrator/objects"
)

const (
	// LeastAverageRate is the least that Averaging.Rate may be, in bytes a second: the right to read an object ends after some time.
	LeastAverageRate = 1 << 20
	// AverageRateBeside is a rate that a server on the same machine does not notice (docs/benchmarks.md, "Averaging next to the control loop").
	AverageRateBeside = 128 << 20
	// limitedBytes are read at once where the rate is limited. What is computed of them is over in a fraction of a millisecond.
	limitedBytes = 256 << 10
	// unlimitedBytes may be read before the limit holds: an average of small checkpoints does not notice it.
	unlimitedBytes = 4 << 20
)

// limited reads the objects of a store no faster than a rate, all of them together.
type limited struct {
	objects.Access
	rate *rate.Limiter
}

// limit limits the rate at which the objects of a store are read, in bytes a second; 0 for no limit. What is made of them is stored no faster
// than they come.
func limit(store objects.Access, perSecond int64) objects.Access {
	if perSecond == 0 {
		return store
	}
	return &limited{Access: store, rate: rate.NewLimiter(rate.Limit(perSecond), unlimitedBytes)}
}

// Get implements objects.Access.
func (l *limited) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	body, err := l.Access.Get(ctx, key)
	return l.body(ctx, body), err
}

// GetRange implements objects.Access.
func (l *limited) GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error) {
	body, err := l.Access.GetRange(ctx, key, from, n)
	return l.body(ctx, body), err
}

func (l *limited) body(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	if body == nil {
		return nil
	}
	return &limitedBody{ReadCloser: body, ctx: ctx, rate: l.rate}
}

// limitedBody is an object that is read so.
type limitedBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // Read has none
	rate *rate.Limiter
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), limitedBytes)])
	if n > 0 {
		if ended := b.rate.WaitN(b.ctx, n); ended != nil {
			return n, ended
		}
	}
	return n, err
}
