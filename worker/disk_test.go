package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// watched returns a disk watch with forks whose files take the given bytes.
func watched(t *testing.T, cfg *Config, bytes ...int) (*diskWatch, []*fork) {
	t.Helper()
	cfg.Node, cfg.files = "n1", t.TempDir()
	w := newDiskWatch(cfg)
	var forks []*fork
	for i, n := range bytes {
		f := assembleFork(cfg, newOutbox(), &outbidv1.ForkRef{Sweep: "s-1", LeaseId: uint64(i + 1)}, nil, secrets{}, func() {})
		if err := os.MkdirAll(filepath.Join(f.files.trialDir(), "below"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.files.trialDir(), "below", "file"), make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
		w.add(f)
		w.forks[f].next = time.Time{} // make it due
		forks = append(forks, f)
	}
	return w, forks
}

// A trial whose files exceed the limit fails with that reason; others do not.
func TestATrialsFilesAreBounded(t *testing.T) {
	t.Parallel()
	w, forks := watched(t, &Config{ScratchBytes: 1 << 20, DiskMargin: -1}, 3<<20, 100<<10)
	w.check(t.Context())
	if why := forks[0].rejection(); why == nil || !strings.Contains(why.detail, "at most 1.0 MiB are allowed (--scratch-bytes)") {
		t.Errorf("the reason is %v", why)
	}
	if why := forks[1].rejection(); why != nil {
		t.Errorf("another trial fails: %v", why)
	}
}

// On a full disk the worker checks its machine at once, and ends the trial with the most files on disk, once.
func TestAFullDiskEndsWhatFillsIt(t *testing.T) {
	t.Parallel()
	w, forks := watched(t, &Config{ScratchBytes: -1, DiskMargin: 1 << 20}, 2<<20, 5<<20, 100<<10)
	free := int64(1 << 30)
	w.free = func() (int64, error) { return free, nil }
	changes := 0
	w.changed = func() { changes++ }
	w.check(t.Context())
	if changes != 0 {
		t.Errorf("with free space it asked for %d checks", changes)
	}
	free = 1000
	for range 3 {
		w.check(t.Context())
	}
	for i, f := range forks {
		if why := f.rejection(); (why != nil) != (i == 1) || why != nil && !strings.Contains(why.detail, "--disk-margin of node n1") {
			t.Errorf("trial %d: %v", i, why)
		}
	}
	if changes != 1 {
		t.Errorf("once the disk was full it asked for %d checks", changes)
	}
	w.remove(forks[1])
	w.check(t.Context())
	if why := forks[0].rejection(); why == nil {
		t.Error("the next largest trial continues although the disk is still full")
	}
	if why := forks[2].rejection(); why != nil {
		t.Errorf("a trial whose end would free little fails: %v", why)
	}
	free = 1 << 30
	w.check(t.Context())
	if changes != 2 {
		t.Errorf("with free space again it had asked for %d checks", changes)
	}
}
