package server

import "testing"

// TestWorkersOfOneMachineLookForUnlikeDevices checks that workers on one machine may search for different kinds of
// devices, and declare any.
func TestWorkersOfOneMachineLookForUnlikeDevices(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		first, second string
		ok            bool
	}{
		{"gpu", "cpu:4", true},
		{"gpu", "cpu", true},
		{"cpu", "v100:2,gpu", true},
		{"cpu:1", "cpu:1", true},
		{"gpu", "gpu", false},
		{"cpu", "v100:2,cpu", false},
		{"auto", "cpu", false},
		{"gpu", "", false},
	} {
		first, second := WorkerConfig{Name: "a", Devices: tc.first}, WorkerConfig{Name: "b", Devices: tc.second}
		if err := second.checkDevices([]WorkerConfig{first}); (err == nil) != tc.ok {
			t.Errorf("%q after %q: %v", tc.second, tc.first, err)
		}
	}
}
