package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// ask reads one option of each kind. Two of the defaults are outside the option's bounds.
func ask(o *policy.Options) []any {
	return []any{
		o.Duration("never", 0, ""), o.Float("beyond", 7, 0, 1, ""), o.Duration("lease", 90*time.Second, ""),
		o.Float("f", 0.8, 0, 1, ""), o.Int("n", 3, 1, 9, ""), o.Seed("seed", 1, ""), o.Bool("borrow", true, ""),
		o.Text("per", "job", "", "job", "app"), o.Text("tickets", "", ""), o.Ascending("queues", "3600,36000", ""),
	}
}

func TestResolvedOptionsHoldAll(t *testing.T) {
	t.Parallel()
	defaults := map[string]string{
		"never": "0s", "beyond": "7", "lease": "1m30s", "f": "0.8", "n": "3", "seed": "1", "borrow": "true", "per": "job",
		"tickets": "", "queues": "3600,36000",
	}
	for name, tc := range map[string]struct{ given, want map[string]string }{
		"defaults": {nil, defaults},
		"given":    {map[string]string{"lease": "300s", "n": "4", "per": "app", "queues": "1"}, nil},
		"said":     {defaults, defaults},
	} {
		o := policy.NewOptions(tc.given)
		values := ask(o)
		if err := o.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := tc.want
		if want == nil {
			want = cloneWith(defaults, tc.given)
		}
		if diff := cmp.Diff(want, o.Resolved()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		again := policy.NewOptions(o.Resolved())
		if diff := cmp.Diff(values, ask(again)); diff != "" || again.Err() != nil {
			t.Errorf("%s: options made from the resolved ones differ, %v (-first +second):\n%s", name, again.Err(), diff)
		}
	}
}

func cloneWith(all, other map[string]string) map[string]string {
	clone := map[string]string{}
	for _, m := range []map[string]string{all, other} {
		for name, value := range m {
			clone[name] = value
		}
	}
	return clone
}
