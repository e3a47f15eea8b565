package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// TestForgeriesAreCounted checks that messages without a known worker's signature are counted.
func TestForgeriesAreCounted(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	r := newRefusals(slog.New(slog.NewTextHandler(&said, nil)))
	for range 3 {
		r.note("outbid.v1.up.n1", identity.ErrSignature)
	}
	if got := strings.Count(said.String(), "dropping a message in the name of a worker"); got != 1 {
		t.Errorf("said %d times:\n%s", got, said.String())
	}
}
