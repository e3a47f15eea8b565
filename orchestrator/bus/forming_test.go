package bus

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// apiError is an error of JetStream.
type apiError jetstream.ErrorCode

func (e apiError) Error() string { return fmt.Sprint("code ", int(e)) }

func (e apiError) APIError() *jetstream.APIError {
	return &jetstream.APIError{ErrorCode: jetstream.ErrorCode(e)}
}

// TestAClusterThatFormsIsWaitedFor checks that the campaign waits for a NATS cluster whose servers are not connected
// yet, but not for other errors of JetStream.
func TestAClusterThatFormsIsWaitedFor(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		apiError(10005): true, apiError(10008): true, fmt.Errorf("create bucket: %w", &jetstream.APIError{ErrorCode: 10005}): true,
		apiError(10074): false, apiError(10023): false, errors.New("no"): false, jetstream.ErrBucketNotFound: false,
	} {
		if isForming(err) != want {
			t.Errorf("%v: want %t", err, want)
		}
	}
}
