package objects

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// TestSteadyWriter writes pieces of any size. The file must have the written content, and all but the last bytes must
// have been sent to the disk.
func TestSteadyWriter(t *testing.T) {
	dir := t.TempDir()
	random := make([]byte, 3*steadyBytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random) // it never fails
	rapid.Check(t, func(t *rapid.T) {
		f, err := os.Create(filepath.Join(dir, "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		w := newSteadyWriter(f)
		var want []byte
		for range rapid.IntRange(0, 4).Draw(t, "writes") {
			p := random[:rapid.IntRange(0, len(random)).Draw(t, "size")]
			p = p[rapid.IntRange(0, len(p)).Draw(t, "from"):]
			if n, err := w.Write(p); n != len(p) || err != nil {
				t.Fatalf("wrote %d of %d: %v", n, len(p), err)
			}
			want = append(want, p...)
			if left := w.written - w.begun; left < 0 || left >= steadyBytes {
				t.Fatalf("%d of %d bytes are begun", w.begun, w.written)
			}
		}
		if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes are there instead of %d: %v", len(got), len(want), err)
		}
	})
}

// TestSteadyWriterFails checks that the file's errors are returned.
func TestSteadyWriterFails(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if _, err := newSteadyWriter(f).Write([]byte("x")); err == nil {
		t.Fatal("wrote to a file that is closed")
	}
}
