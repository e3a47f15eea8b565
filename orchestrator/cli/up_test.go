package cli

import "testing"

// TestUpLetsTrialsGrowSoon checks that up gives idle devices to running trials soon, unless an option says otherwise or
// the policy does not have the option.
func TestUpLetsTrialsGrowSoon(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy string
		given  []string
		want   string
	}{
		{"themis", nil, "10"},
		{"outbid", []string{"lease=1m"}, "10"},
		{"themis", []string{"grow=0"}, "0"},
		{"fifo", nil, ""},
	} {
		o := serverFlags{policyOptions: tc.given}
		o.Policy = tc.policy
		if err := o.parse((&serverCommands{process: newTestApp(nil, nil).process}).upCommand().Flags()); err != nil {
			t.Fatal(err)
		}
		o.setGrowDefault()
		if got := o.PolicyOptions["grow"]; got != tc.want {
			t.Errorf("%s with %v has grow %q, want %q", tc.policy, tc.given, got, tc.want)
		}
	}
}
