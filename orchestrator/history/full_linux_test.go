package history

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestFullDisk writes to a file system of 1 MB, if the system allows the test to mount one.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small file system here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	h := openHistory(t, dir)
	var want []entry
	ballast := filepath.Join(dir, "ballast")
	mustAppend(t, h, 1, report("a-1", 0, 1))
	mustFlush(t, h)
	want = append(want, entries(report("a-1", 0, 1))...)
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	for seq := uint64(2); seq < 4000; seq++ {
		e := report("a-1", int32(seq%10), int64(seq))
		want = append(want, entries(e)...)
		if err := h.Append(seq, []*outbidv1.Event{e}); err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := h.Flush(); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("flush on a full disk: %v", err)
	}
	same(t, want, readAll(t, h, "a-1", nil))
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	closeHistory(t, h)
	h = openHistory(t, dir)
	same(t, want, readAll(t, h, "a-1", nil))
	closeHistory(t, h)
}
