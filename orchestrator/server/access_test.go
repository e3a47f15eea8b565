package server

import (
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A server that does not lead, or not any more, leaves a worker's request to the one that does: from what it knows it would refuse leases
// that it has not heard of.
func TestAServerThatDoesNotLeadGivesNoAnswer(t *testing.T) {
	t.Parallel()
	if answer := new(Server).answerAccess(&outbidv1.AccessRequest{Node: "n", Key: "checkpoints/s-1/0/1-1.ckpt"}); answer != nil {
		t.Errorf("it says %v", answer)
	}
}
