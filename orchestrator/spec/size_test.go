package spec

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestTooLarge checks that the error names the field, its size and the limit of each part that is too large.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("v", 70_000)
	for name, tc := range map[string]struct {
		change func(s *outbidv1.SweepSpec)
		field  string
		says   []string
	}{
		"value of a choice": {func(s *outbidv1.SweepSpec) {
			s.GetSpace()["x"] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Choice{Choice: &outbidv1.Choice{
				Values: []*structpb.Value{structpb.NewStringValue("a"), structpb.NewStringValue(big)},
			}}}
		}, "space.x", []string{"70", "at most 61440"}},
		"constant": {func(s *outbidv1.SweepSpec) {
			s.GetSpace()["x"] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Constant{Constant: structpb.NewStringValue(big)}}
		}, "space.x", []string{"70", "at most 61440"}},
		"many parameters": {func(s *outbidv1.SweepSpec) {
			for i := range 10 {
				s.GetSpace()[fmt.Sprint("x", i)] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Constant{
					Constant: structpb.NewStringValue(big[:7000]),
				}}
			}
		}, "space.x", []string{"at most 61440"}},
		"point": {func(s *outbidv1.SweepSpec) {
			s.GetTuner().Points = []*structpb.Struct{{}, {Fields: map[string]*structpb.Value{"lr": structpb.NewStringValue(big)}}}
		}, "tuner.points[1]", []string{"at most 61440"}},
		"labels": {func(s *outbidv1.SweepSpec) {
			s.Labels = map[string]string{}
			for i := range 20 {
				s.Labels[fmt.Sprint("l", i)] = big[:1000]
			}
		}, "labels", []string{"20050 bytes", "at most 16384"}},
	} {
		s, err := Parse([]byte(good))
		if err != nil {
			t.Fatal(err)
		}
		s.Space = maps.Clone(s.GetSpace())
		tc.change(s)
		wrong := (*Error)(nil)
		if err := Check(s); !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Field, tc.field) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, text := range tc.says {
			if !strings.Contains(wrong.Problem, text) {
				t.Errorf("%s: %q does not say %q", name, wrong.Problem, text)
			}
		}
	}
}

func TestCheckSize(t *testing.T) {
	t.Parallel()
	s, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckSize(s, limits.Spec(limits.Message)); err != nil {
		t.Errorf("an ordinary spec: %v", err)
	}
	env := map[string]string{"SMALL": "x", "LARGE": strings.Repeat("v", 62_000)}
	s.GetProgram().Env = env
	s.Labels = map[string]string{"a": "b"}
	err = CheckSize(s, limits.Spec(limits.Message))
	if err == nil || !strings.HasPrefix(err.Error(), "program: has 62") || !strings.Contains(err.Error(), "at most 61440 are allowed") {
		t.Errorf("%v", err)
	}
}
