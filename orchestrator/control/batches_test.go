package control

import (
	"slices"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A step is split only where that is allowed.
func TestAStepIsCutWhereItMayBe(t *testing.T) {
	t.Parallel()
	const most, big, eventSize = eventsPerBatch, 1 << 20, 6
	for name, tc := range map[string]struct {
		events, bytes int
		ends, want    []int
	}{
		"nothing":                     {0, big, nil, nil},
		"one batch":                   {most, big, []int{5, most}, []int{most}},
		"at the last end that fits":   {most + 2, big, []int{5, most - 7, most + 2}, []int{most - 7, most + 2}},
		"exactly":                     {2 * most, big, []int{most, 2 * most}, []int{most, 2 * most}},
		"what belongs together":       {most + 9, big, []int{most + 8, most + 9}, []int{most + 8, most + 9}},
		"together behind others":      {2*most + 20, big, []int{10, most + 15, 2*most + 20}, []int{10, most + 15, 2*most + 20}},
		"all of it":                   {3 * most, big, []int{3 * most}, []int{3 * most}},
		"nobody said where it may be": {most + 1, big, nil, []int{most + 1}},
		"by bytes":                    {10, 3 * eventSize, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, []int{3, 6, 9, 10}},
		"more than a message takes":   {10, 3 * eventSize, []int{1, 9}, []int{1, 9, 10}},
		"each more than a message":    {4, 1, []int{1, 2, 3, 4}, []int{1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := Outcome{Events: make([]*outbidv1.Event, tc.events), Ends: tc.ends, Bytes: tc.events * eventSize}
			for i := range out.Events {
				out.Events[i] = &outbidv1.Event{}
			}
			var got []int
			n := 0
			for _, b := range batches(out, tc.bytes) {
				n += len(b)
				got = append(got, n)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("it is cut at %v, want %v", got, tc.want)
			}
		})
	}
}
