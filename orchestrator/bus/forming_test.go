package bus

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// apiError is an answer of JetStream's.
type apiError jetstream.ErrorCode

func (e apiError) Error() string { return fmt.Sprint("code ", int(e)) }

func (e apiError) APIError() *jetstream.APIError {
	return &jetstream.APIError{ErrorCode: jetstream.ErrorCode(e)}
}

// A NATS cluster whose servers have not found each other is waited for; what else JetStream refuses is not.
func TestAClusterThatFormsIsWaitedFor(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		apiError(10005): true, apiError(10008): true, fmt.Errorf("create bucket: %w", &jetstream.APIError{ErrorCode: 10005}): true,
		apiError(10074): false, apiError(10023): false, errors.New("no"): false, jetstream.ErrBucketNotFound: false,
	} {
		if forming(err) != want {
			t.Errorf("%v: want %t", err, want)
		}
	}
}
