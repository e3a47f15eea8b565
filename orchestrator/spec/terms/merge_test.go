package terms_test

import (
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
)

func TestHowForksArePutTogether(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]terms.Merge{
		"": {}, "steps": {}, "uniform": {Uniform: true}, "best": {Best: true}, "outer": {Outer: true, Rate: 0.7, Momentum: 0.9},
		"outer(0.5,0)": {Outer: true, Rate: 0.5}, "outer( 1.5 , 0.99 )": {Outer: true, Rate: 1.5, Momentum: 0.99},
	} {
		if got, err := terms.ParseMerge(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"worst": "is unknown", "best(": "is unknown", "outer(": "is unknown", "outer()": "is unknown", "outer(1)": "is unknown", "outer(1,2,3)": "not a number",
		"outer(a,0)": "not a number", "outer(0,0)": "a rate that is not above 0", "outer(NaN,0)": "a rate that is not above 0",
		"outer(1,1)": "a momentum that is not at least 0", "outer(1,NaN)": "a momentum that is not at least 0", "Uniform": "is unknown",
	} {
		if _, err := terms.ParseMerge(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "such as outer(0.7, 0.9)") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
