package server

import (
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestAServerThatDoesNotLeadGivesNoAnswer checks that only the leader answers a worker's request, because other servers
// do not know the newest leases and would reject them.
func TestAServerThatDoesNotLeadGivesNoAnswer(t *testing.T) {
	t.Parallel()
	if answer := new(Server).answerAccess(&outbidv1.AccessRequest{Node: "n", Key: "checkpoints/s-1/0/1-1.ckpt"}); answer != nil {
		t.Errorf("it says %v", answer)
	}
}
