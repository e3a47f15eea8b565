package confine

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/worker/proctable"
)

// holdable returns a confinement that can be held.
func holdable(t *testing.T) *Confinement {
	t.Helper()
	c := open(t, None)
	in := enter(t, c, Limits{})
	if !in.CanHold() {
		t.Skip("there are no control groups that stop processes")
	}
	return in
}

// ticking starts a process that appends to a file, and returns a function that waits until the file grows, and
// returns false if it does not.
func ticking(t *testing.T, in *Confinement) (goesOn func(within time.Duration) bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ticks")
	run(t, in, `echo ready; trap "" TERM; while :; do printf x >> `+file+`; sleep 0.01; done`)
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	return func(within time.Duration) bool {
		before, end := size(), time.After(within)
		for size() <= before+1 { // one write may have been in progress
			select {
			case <-end:
				return false
			case <-time.After(time.Millisecond):
			}
		}
		return true
	}
}

// Held processes do nothing until they are released, can be killed like others, and a new process runs at once.
func TestWhatIsHeldStandsStill(t *testing.T) {
	t.Parallel()
	in := holdable(t)
	goesOn := ticking(t, in)
	if !goesOn(time.Minute) {
		t.Fatal("it does nothing")
	}
	for range 2 {
		if err := in.Hold(true); err != nil {
			t.Fatal(err)
		}
		if goesOn(300 * time.Millisecond) {
			t.Fatal("it is held, and continues")
		}
		if err := in.Hold(false); err != nil {
			t.Fatal(err)
		}
		if !goesOn(time.Minute) {
			t.Fatal("it was released, and does not run")
		}
	}
	if err := in.Hold(true); err != nil {
		t.Fatal(err)
	}
	if began := ticking(t, in); !began(time.Minute) {
		t.Error("a process that was started in what was held does not run")
	}
	if err := in.Hold(true); err != nil {
		t.Fatal(err)
	}
	pids, err := in.group.pids()
	if err != nil || len(pids) < 2 {
		t.Fatal(pids, err)
	}
	if err := in.Kill(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if _, lives := proctable.Get(pid); lives {
			t.Errorf("process %d was held, and outlived its end", pid)
		}
	}
}

// The next worker ends processes that a killed worker had held.
func TestWhatAKilledWorkerHeldIsEnded(t *testing.T) {
	t.Parallel()
	in := holdable(t)
	goesOn := ticking(t, in)
	if !goesOn(time.Minute) {
		t.Fatal("it does nothing")
	}
	if err := in.Hold(true); err != nil {
		t.Fatal(err)
	}
	groups := []string{}
	switch g := in.group.(type) {
	case *groupV1:
		groups = g.dirs
	case *groupV2:
		groups = append(groups, g.dir)
	}
	for i := len(groups) - 1; i >= 0; i-- {
		if err := endGroups(groups[i]); err != nil {
			t.Error(err)
		}
	}
	if goesOn(300 * time.Millisecond) {
		t.Error("it continues")
	}
}

// Control groups of version 2 can hold processes too.
func TestVersionTwoHolds(t *testing.T) {
	t.Parallel()
	tree, err := openV2(mountV2(t), fmt.Sprint("outbid-held-", os.Getpid()))
	if err != nil {
		t.Skip(err)
	}
	c := open(t, None)
	if c.tree != nil {
		if err := c.tree.close(); err != nil {
			t.Error(err)
		}
	}
	c.tree = tree
	in := enter(t, c, Limits{})
	if !in.CanHold() {
		t.Skip("the kernel is older than 5.2")
	}
	goesOn := ticking(t, in)
	if !goesOn(time.Minute) {
		t.Fatal("it does nothing")
	}
	if err := in.Hold(true); err != nil {
		t.Fatal(err)
	}
	if goesOn(300 * time.Millisecond) {
		t.Error("it is held, and continues")
	}
	if err := in.Kill(); err != nil {
		t.Error(err)
	}
}

// A trial's writes count as unwritten until they are on the disk.
func TestUnwrittenIsWhatIsNotOnTheDisk(t *testing.T) {
	t.Parallel()
	in := holdable(t)
	file := filepath.Join(outside(t), "file")
	_, wait := run(t, in, `head -c 50000000 /dev/zero > `+file+`; echo ready; read x`)
	t.Cleanup(func() { _ = wait() })
	most := int64(0)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && most < 10_000_000; {
		bytes, err := in.Unwritten()
		if err != nil {
			t.Skip("the kernel does not say: ", err)
		}
		most = max(most, bytes)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Minute)
	for {
		bytes, err := in.Unwritten()
		if err != nil {
			t.Fatal(err)
		}
		if bytes < 1_000_000 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes are not written after all is on the disk", bytes)
		}
		<-time.After(10 * time.Millisecond)
	}
	if most < 10_000_000 {
		t.Errorf("%d bytes of 50 MB were unwritten at the most", most)
	}
}
