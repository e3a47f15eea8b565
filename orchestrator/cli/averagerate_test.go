package cli

import (
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/server"
)

func TestAverageRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "1MiB": 1 << 20, "128MiB": 128 << 20, "2GB": 2e9,
		"1023KiB": -1, "-1MiB": -1, "128": -1, "fast": -1, "": 7,
	} {
		got, err := averageRate(text, 7)
		if want < 0 {
			if err == nil || !strings.Contains(err.Error(), `--average-rate "`+text+`": want 1MiB or more`) {
				t.Errorf("%q is read as %d, and it says: %v", text, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
}

// TestLimitAverages checks that workers on the server's machine average slowly unless a flag says otherwise.
func TestLimitAverages(t *testing.T) {
	t.Parallel()
	for rate, want := range map[string]int64{"": 128 << 20, "0": 0, "1GiB": 1 << 30} {
		workers := make([]server.WorkerConfig, 2)
		if err := limitAverages(workers, rate); err != nil || workers[0].AverageRate != want || workers[1].AverageRate != want {
			t.Errorf("%q limits them to %d and %d, %v; want %d", rate, workers[0].AverageRate, workers[1].AverageRate, err, want)
		}
	}
}
