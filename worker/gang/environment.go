package gang

import (
	"strconv"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Size returns how many processes of a gang run on a node that leases devices for it.
func Size(g *outbidv1.Gang, devices int) int {
	if g.GetPerDevice() {
		return max(1, devices)
	}
	return 1
}

// Environment returns the variables that torchrun sets for one of size local ranks of a trial, or nil for a trial
// without a gang.
func Environment(g *outbidv1.Gang, trial *outbidv1.ForkRef, local, size int) []string {
	if g == nil {
		return nil
	}
	number := func(n int32) string { return strconv.Itoa(int(n)) }
	return []string{
		"RANK=" + number(g.GetFirstRank()+int32(local)), "WORLD_SIZE=" + number(g.GetRanks()),
		"LOCAL_RANK=" + strconv.Itoa(local), "LOCAL_WORLD_SIZE=" + strconv.Itoa(size),
		"GROUP_RANK=" + number(g.GetPlace()), "GROUP_WORLD_SIZE=" + number(g.GetPlaces()),
		"MASTER_ADDR=" + g.GetAddress(), "MASTER_PORT=" + number(g.GetPort()),
		"TORCHELASTIC_RESTART_COUNT=" + number(g.GetRestarts()),
		"TORCHELASTIC_RUN_ID=" + trial.GetSweep() + "-" + number(trial.GetTrial()),
	}
}
