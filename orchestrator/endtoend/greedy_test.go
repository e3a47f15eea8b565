package endtoend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/health"
)

// greedy has scripts of programs that exhaust shared resources of a node, and how each ends: the reason of the failure,
// or "" if it continues.
var greedy = map[string]struct{ script, ends string }{ //nolint:gochecknoglobals // a table
	"forks":       {`b() { b | b & }; b; while :; do sleep 1; done`, ""},
	"descriptors": {`for i in $(seq 40); do sh -c 'i=10; while [ $i -lt 1000 ]; do eval "exec $i</dev/null" || break; i=$((i+1)); done; exec sleep 600' & done; exec sleep 600`, ""},
	"reports":     {`while :; do yes '{"loss": 1}' | head -n 20000 >> $OUTBID_REPORT; sleep .2; done`, ""},
	"scratch":     {`i=0; while :; do head -c 1000000 /dev/zero > $i; i=$((i+1)); done`, "at most 64 MiB are allowed (--scratch-bytes)"},
	"tmp":         {`cd /tmp && exec head -c 100G /dev/zero > fill`, "at most 64 MiB are allowed (--scratch-bytes)"},
	"shm":         {`ipcmk -M 30000000 > /dev/null; ipcmk -M 30000000 > /dev/null; exec head -c 1G /dev/zero > /dev/shm/fill`, "o"},
}

// TestGreedyTrialsLeaveOthersTheirRate checks that trials of one tenant that exhaust processes, files, disk, memory and
// the ledger at once fail alone or are slowed down, and that a trial of another tenant on the same node keeps its rate.
func TestGreedyTrialsLeaveOthersTheirRate(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can run trials as other users, so nothing confines them here")
	}
	limits := writeFile(t, "tenants:\n  bad: {report_rate: 1KiB}\n")
	c := contain(t, len(greedy), "--scratch-bytes", "64MiB", "--trial-processes", "500", "--trial-files", "512", "--limits", limits)
	ids := map[string]string{}
	for name, g := range greedy {
		ids[name] = c.run(name, g.script, func(sp *outbidv1.SweepSpec) {
			sp.Tuner, sp.Resources = random(1_000_000), &outbidv1.Resources{Memory: "256MiB"}
		})
	}
	for name, g := range greedy {
		if g.ends == "" {
			continue
		}
		c.wait(ids[name])
		if why := c.trials(ids[name])[0].GetReason(); !strings.Contains(why, g.ends) {
			t.Errorf("%s ends as %q, want %q", name, why, g.ends)
		}
	}
	poll(t, "the note that reports wait", func() bool { return len(notes(c.sweep(ids["reports"]), "(report_rate)")) > 0 })
	paced, size := c.sweep(ids["reports"]).GetSteps(), c.ledgerBytes()
	c.waitSteps(c.healthy, c.sweep(c.healthy).GetSteps()+100)
	if more := c.sweep(ids["reports"]).GetSteps() - paced; more > 5000 {
		t.Errorf("it reported another %d steps after the note that it waits", more)
	}
	t.Logf("at its rate the ledger grew by %d bytes in %d steps of the healthy trial", c.ledgerBytes()-size, 100)
	for name, g := range greedy {
		if g.ends == "" {
			c.command(ids[name], outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
			c.wait(ids[name])
		}
	}
	c.stillTrains()
	c.stop()
}

// TestAWriterLeavesOthersTheDisk checks that a trial that writes as fast as possible, within its limits, is slowed down
// while another one waits for that disk, with one note about it.
func TestAWriterLeavesOthersTheDisk(t *testing.T) {
	t.Parallel()
	if _, err := health.DiskBusy(openDir(t)); err != nil || os.Geteuid() != 0 {
		t.Skip("nothing is held up here: ", err)
	}
	c := contain(t, 1)
	id := c.run("writer", `while :; do dd if=/dev/zero of=file bs=1M count=2000 conv=notrunc 2> /dev/null; done`)
	const told = "other trials wait for the disk"
	poll(t, "the note that it is held up", func() bool { return len(notes(c.sweep(id), told)) > 0 })
	c.waitSteps(c.healthy, c.sweep(c.healthy).GetSteps()+200)
	mustTellOnce(t, c.sweep(id), told)
	c.command(id, outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
	if state := c.wait(id).GetState(); state != outbidv1.SweepState_SWEEP_STATE_STOPPED {
		t.Errorf("the writer is %s", state)
	}
	c.stillTrains()
	c.stop()
}

// TestAWorkerSaysWhatItCannotLimit checks that a worker under 'ip netns exec', whose /sys lacks control groups, mounts
// them itself. If it may not, its log and the list of nodes show what it does not limit. Neither slows down a trial of
// another worker.
func TestAWorkerSaysWhatItCannotLimit(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this takes root")
	}
	dir := t.TempDir()
	c := containOn(t, dir, serve(t, dir, "up", "--devices", "cpu:3", "--trial-user", "auto", "--policy", "drf"))
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	// 'ip netns exec' does the same to /sys.
	const hide = `umount -l /sys; mount -t sysfs sysfs /sys; exec "$@"`
	work := func(name string, before ...string) *proc {
		args := append([]string{"-m", "sh", "-c", hide, "sh"}, before...)
		return startCommand(t, dir, "unshare", append(args, path, "worker", "--nats", c.Info.NATS, "--keys", c.Info.Keys, "--name", name, "--devices", "cpu:1", "--trial-user", "auto", "--dir", filepath.Join(dir, name))...)
	}
	mounts, bare := work("mounts"), work("bare", "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--")
	const want = "trials' memory and CPUs are not limited: no control groups are mounted"
	bare.until(want)
	warnings := map[string]string{}
	poll(t, "the workers", func() bool {
		list, err := c.ListNodes(t.Context(), &outbidv1.ListNodesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list.GetNodes() {
			warnings[n.GetInfo().GetName()] = strings.Join(n.GetInfo().GetWarnings(), "; ")
		}
		return len(warnings) == 3
	})
	if !strings.Contains(warnings["bare"], want) || !strings.Contains(warnings["bare"], "share /tmp, /dev/shm and System V IPC") || warnings["mounts"] != "" {
		t.Errorf("the warnings are %q", warnings)
	}
	if text, _ := mounts.out.text(); strings.Contains(text, "not limited") {
		t.Errorf("it has control groups, but prints:\n%s", text)
	}
	if text, code := tool(t, dir, "nodes", "--server", c.Info.API); code != 0 || !strings.Contains(text, want) {
		t.Errorf("the listing of nodes is\n%s", text)
	}
	c.stillTrains()
	mounts.stop()
	bare.stop()
	c.stop()
}

// ledgerBytes returns the size of the ledger on the disk.
func (c *containment) ledgerBytes() (sum int64) {
	_ = filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.Contains(path, "OUTBID_LEDGER") {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
