package sparse

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestWriter checks that data written in any pieces is read back, and that pages of zeros take no space.
func TestWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "file")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := NewWriter(f)
		var want []byte
		for range rapid.IntRange(0, 8).Draw(t, "pieces") {
			piece := bytes.Repeat([]byte{rapid.SampledFrom([]byte{0, 0, 1}).Draw(t, "byte")}, rapid.SampledFrom([]int{0, 1, 100, Page - 1, Page, Page + 1, 5 * Page}).Draw(t, "size"))
			if n, err := w.Write(piece); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
			want = append(want, piece...)
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes instead of %d, %v", len(got), len(want), err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		if full := (int64(bytes.Count(want, []byte{1}))/1 + 16*Page) * 2; st.Blocks*512 > full {
			t.Fatalf("%d bytes take %d", len(want), st.Blocks*512)
		}
	})
}
