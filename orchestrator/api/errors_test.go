package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// TestErrorsThatPass checks that temporary errors are UNAVAILABLE, and faults of the server's code INTERNAL.
func TestErrorsThatPass(t *testing.T) {
	t.Parallel()
	fault := errors.New("index out of range")
	for name, c := range map[string]struct {
		err       error
		stopping  bool
		cancelled bool
		want      codes.Code
	}{
		"the loop has ended":              {err: state.ErrStopping, want: codes.Unavailable},
		"NATS is away":                    {err: nats.ErrConnectionClosed, want: codes.Unavailable},
		"NATS is silent":                  {err: nats.ErrTimeout, want: codes.Unavailable},
		"a part is late":                  {err: context.DeadlineExceeded, want: codes.Unavailable},
		"a part was cancelled":            {err: context.Canceled, want: codes.Unavailable},
		"NATS has no room":                {err: jetstream.ErrJetStreamNotEnabled, want: codes.Unavailable},
		"the store is away":               {err: objects.ErrUnavailable, want: codes.Unavailable},
		"the store is full":               {err: objects.ErrFull, want: codes.ResourceExhausted},
		"the store is full, and stopping": {err: objects.ErrFull, stopping: true, want: codes.ResourceExhausted},
		"a file was closed, and stopping": {err: fs.ErrClosed, stopping: true, want: codes.Unavailable},
		"not there, and stopping":         {err: state.ErrNotFound, stopping: true, want: codes.NotFound},
		"a fault":                         {err: fault, want: codes.Internal},
		"the caller has gone":             {err: context.Canceled, cancelled: true, want: codes.Canceled},
		"the caller's deadline":           {err: context.DeadlineExceeded, cancelled: true, want: codes.DeadlineExceeded},
		"a status":                        {err: status.Error(codes.Aborted, "again"), want: codes.Aborted},
	} {
		server, stop := context.WithCancel(t.Context())
		call, leave := context.WithCancel(t.Context())
		if c.stopping {
			stop()
		}
		if c.cancelled {
			leave()
		}
		i := &interceptor{stopping: server}
		_, err := i.publicError(call, fmt.Errorf("doing it: %w", c.err), "id")
		if status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		stop()
		leave()
	}
}
