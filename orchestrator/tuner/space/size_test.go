package space_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestLargest(t *testing.T) {
	t.Parallel()
	choice := func(sizes ...int) *outbidv1.Parameter {
		c := &outbidv1.Choice{}
		for _, n := range sizes {
			c.Values = append(c.Values, structpb.NewStringValue(strings.Repeat("v", n)))
		}
		return &outbidv1.Parameter{Kind: &outbidv1.Parameter_Choice{Choice: c}}
	}
	under := func(p *outbidv1.Parameter, value int) *outbidv1.Parameter {
		p.When = &outbidv1.Condition{Param: "a", In: []*structpb.Value{structpb.NewStringValue(strings.Repeat("v", value))}}
		return p
	}
	s, err := space.Compile(map[string]*outbidv1.Parameter{
		"a": choice(1, 100, 10),
		"b": under(choice(3000), 1),
		"c": under(choice(4000), 10),
		"g": {Kind: &outbidv1.Parameter_Group{Group: &outbidv1.Group{Space: map[string]*outbidv1.Parameter{"d": choice(50)}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bytes, field := s.Largest()
	if field != "space.c" || bytes < 4150 || bytes > 4200 {
		t.Errorf("%d bytes, mostly of %s", bytes, field)
	}
}
