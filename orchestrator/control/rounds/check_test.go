package rounds

import (
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestForksNeedAPolicyThatForks(t *testing.T) {
	t.Parallel()
	spec := &outbidv1.SweepSpec{}
	if err := checkForks(baseline.FIFO{}, spec); err != nil {
		t.Error(err)
	}
	spec.Resources = &outbidv1.Resources{Forks: "1-4"}
	err := checkForks(baseline.FIFO{}, spec)
	if err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "invalid: "), "resources.forks: policy fifo of this server does not fork trials") || strings.Contains(err.Error(), "--policy") {
		t.Errorf("the error is %v", err)
	}
}
