package cli

import (
	"strings"
	"testing"
)

// TestASweepsBidderNeedsAuctions checks that submit and preview reject a bidder under a policy without auctions.
func TestASweepsBidderNeedsAuctions(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "sweep.yaml", realSweep+"\nagent: {plugin: patient}\n")
	for policy, want := range map[string]string{
		"drf":    `agent.plugin: policy drf of this server does not hold auctions, so bidder "patient" would never be asked`,
		"themis": `agent.plugin: this server has no bidder "patient"; it has none`,
	} {
		u := startServer(t, "up", "--data", t.TempDir(), "--api", "127.0.0.1:0", "--workers", "0", "--policy", policy)
		for _, command := range []string{"preview", "submit", "run"} {
			if got := u.command(t, exitUsage, command, file); !strings.Contains(got, want) {
				t.Errorf("under %s %s printed %q", policy, command, got)
			}
		}
		u.stop(t)
	}
}
