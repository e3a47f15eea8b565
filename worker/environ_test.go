package worker

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every library gets the trial's number of CPUs, a number for OpenMP applies to all, and the user's values are not
// changed.
func TestThreadLimits(t *testing.T) {
	t.Parallel()
	all := func(n string, but ...string) (env []string) {
		for _, name := range threadVariables() {
			if !strings.Contains(strings.Join(but, " "), name) {
				env = append(env, name+"="+n)
			}
		}
		return env
	}
	for name, tc := range map[string]struct {
		inherited []string
		user      map[string]string
		want      []string
	}{
		"nothing set":         {want: all("3")},
		"the user's OpenMP":   {user: map[string]string{"OMP_NUM_THREADS": "2"}, want: all("2", "OMP_NUM_THREADS")},
		"the worker's OpenMP": {inherited: []string{"A=b", "OMP_NUM_THREADS=8,2"}, want: all("8", "OMP_NUM_THREADS")},
		"the user's goes first": {
			inherited: []string{"OMP_NUM_THREADS=8"}, user: map[string]string{"OMP_NUM_THREADS": "1"}, want: all("1", "OMP_NUM_THREADS"),
		},
		"one library": {user: map[string]string{"MKL_NUM_THREADS": "7"}, want: all("3", "MKL_NUM_THREADS")},
		"no number":   {user: map[string]string{"OMP_NUM_THREADS": "many"}, want: all("3", "OMP_NUM_THREADS")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, threadLimits(tc.inherited, tc.user, "3")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
