package inventory

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestCgroupLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]int64{"max\n": math.MaxInt64, "1048576\n": 1 << 20, "": math.MaxInt64, "0": math.MaxInt64} {
		path := filepath.Join(dir, "memory.max")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := cgroupLimit(path); got != want {
			t.Errorf("limit %q = %d, want %d", text, got, want)
		}
	}
	if got := cgroupLimit(filepath.Join(dir, "none")); got != math.MaxInt64 {
		t.Errorf("no file: %d", got)
	}
}
