package bus

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestRepeatedListsAreDecodedAsAnyOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSame[*outbidv1.ForkStatus](uplinkForks)
		for range rapid.IntRange(1, 20).Draw(t, "messages") {
			up := &outbidv1.Uplink{
				Node: "n", Boot: "b", FirstSeq: rapid.Uint64Range(0, 3).Draw(t, "seq"), Leaving: rapid.Bool().Draw(t, "leaving"),
			}
			for leaseID := range rapid.Uint64Range(0, 3).Draw(t, "forks") {
				version := rapid.Uint64Range(0, 1).Draw(t, "version")
				up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: &outbidv1.ForkRef{Sweep: "s", LeaseId: leaseID}, Version: version})
			}
			data, err := proto.Marshal(up)
			if err != nil {
				t.Fatal(err)
			}
			who := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "who")
			if rapid.IntRange(0, 9).Draw(t, "damage") == 0 && len(data) > 0 {
				data = data[:rapid.IntRange(0, len(data)-1).Draw(t, "cut")]
			}
			want, got := new(outbidv1.Uplink), new(outbidv1.Uplink)
			wantErr, gotErr := proto.Unmarshal(data, want), s.decode(who, data, got, &got.Forks)
			if (wantErr == nil) != (gotErr == nil) || wantErr == nil && !proto.Equal(want, got) {
				t.Fatalf("%v, %v; want %v, %v", got, gotErr, want, wantErr)
			}
		}
	})
}

func TestAListThatIsTheSameIsNotDecodedAgain(t *testing.T) {
	t.Parallel()
	s := newSame[*outbidv1.Assignment](ordersAssignments)
	o := &outbidv1.Orders{Node: "n", Generation: 1, Assignments: []*outbidv1.Assignment{{UntilStep: 3}, {UntilStep: 4}}}
	var decoded []*outbidv1.Orders
	for range 2 {
		o.Generation++
		data, err := proto.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		one := new(outbidv1.Orders)
		if err := s.decode("n", data, one, &one.Assignments); err != nil || !proto.Equal(one, o) {
			t.Fatalf("%v, want %v: %v", one, o, err)
		}
		decoded = append(decoded, one)
	}
	if decoded[0].GetAssignments()[0] != decoded[1].GetAssignments()[0] {
		t.Error("the same assignments were decoded twice")
	}
}
