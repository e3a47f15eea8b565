package worker

import (
	"context"
	"io"

	"golang.org/x/time/rate"

	"github.com/outbid-dev/outbid/orchestrator/objects"
)

const (
	// LeastAverageRate is the least value of Averaging.Rate, in bytes a second, because signed access to an object
	// expires.
	LeastAverageRate = 1 << 20
	// AverageRateBeside is a rate that does not slow down a server on the same machine (docs/benchmarks.md, "Beside
	// the control loop").
	AverageRateBeside = 128 << 20
	// limitedBytes is how much a rate-limited store reads at once. Processing that much takes a fraction of a
	// millisecond.
	limitedBytes = 256 << 10
	// unlimitedBytes is how much may be read before the limit applies, so that averages of small checkpoints are not
	// slowed down.
	unlimitedBytes = 4 << 20
)

// limited reads all objects of a store together no faster than a rate.
type limited struct {
	objects.Access
	rate *rate.Limiter
}

// limit returns a store whose objects are read at perSecond bytes a second at most; 0 means no limit. Because
// averages are written as they are computed, this limits the writes as well.
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

// limitedBody is an object of a limited store.
type limitedBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // Read has no context parameter
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
