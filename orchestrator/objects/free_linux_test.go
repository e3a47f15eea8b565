package objects

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMountDiscards(t *testing.T) {
	t.Parallel()
	const mounts = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard,resuid=65534
31 27 8:1 / /data rw,relatime - xfs /dev/sda1 rw,attr2,nodiscard
32 27 8:17 /a\040-\040b /mnt/discard rw,relatime - ext4 /dev/sdb1 rw
33 27 8:33
`
	for _, c := range []struct {
		major, minor uint32
		want         bool
	}{{254, 0, true}, {8, 1, false}, {8, 17, false}, {8, 33, false}, {0, 21, false}, {9, 9, false}} {
		if got := mountDiscards(mounts, c.major, c.minor); got != c.want {
			t.Errorf("%d:%d discards: %t", c.major, c.minor, got)
		}
	}
}

// TestShrink checks that a large file is truncated in steps before it is removed, unless it is still open or has
// another link.
func TestShrink(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcdef"), 5*freeBytes/16)
	for name, c := range map[string]struct {
		keep func(t *testing.T, path string) (left func() ([]byte, error))
		want bool
	}{
		"alone": {func(*testing.T, string) func() ([]byte, error) { return nil }, true},
		"open": {func(t *testing.T, path string) func() ([]byte, error) {
			t.Helper()
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return func() ([]byte, error) { return io.ReadAll(f) }
		}, false},
		"linked": {func(t *testing.T, path string) func() ([]byte, error) {
			t.Helper()
			other := path + ".other"
			if err := os.Link(path, other); err != nil {
				t.Fatal(err)
			}
			return func() ([]byte, error) {
				if info, err := os.Stat(other); err != nil || info.Mode().Perm() != ownFile {
					t.Errorf("its mode is %v, %v", info.Mode(), err)
				}
				return os.ReadFile(other)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, data, ownFile); err != nil {
				t.Fatal(err)
			}
			left := c.keep(t, path)
			if got := shrink(t.Context(), path); got != c.want {
				t.Fatalf("shrunk: %t", got)
			}
			if left == nil {
				if info, err := os.Stat(path); err != nil || info.Size() != 0 {
					t.Errorf("left are %v, %v", info, err)
				}
			} else if got, err := left(); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes are left of %d: %v", len(got), len(data), err)
			}
		})
	}
}

// TestFreedWhileRead checks that a reader can finish reading an object that is deleted or replaced, and that nothing
// remains afterwards.
func TestFreedWhileRead(t *testing.T) {
	t.Parallel()
	old := strings.Repeat("old", freeBytes)
	for name, change := range map[string]func(d *Dir) error{
		"deleted":  func(d *Dir) error { return d.Delete(t.Context(), "a/b") },
		"replaced": func(d *Dir) error { return d.Put(t.Context(), "a/b", strings.NewReader("new"), 3) },
		"deleted, with no time left": func(d *Dir) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return d.Delete(ctx, "a/b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := OpenDir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			d.freedAtOnce = freeBytes
			for _, read := range []bool{true, false} {
				if err := d.Put(t.Context(), "a/b", strings.NewReader(old), int64(len(old))); err != nil {
					t.Fatal(err)
				}
				r := io.NopCloser(strings.NewReader(old))
				if read {
					if r, err = d.Get(t.Context(), "a/b"); err != nil {
						t.Fatal(err)
					}
				}
				if err := change(d); err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(r); err != nil || string(got) != old {
					t.Errorf("%d bytes of %d were read: %v", len(got), len(old), err)
				}
				_ = r.Close()
			}
			if entries, err := os.ReadDir(filepath.Join(d.root, tempDir)); err != nil || len(entries) != 0 {
				t.Errorf("left over: %v, %v", entries, err)
			}
		})
	}
}

// BenchmarkSyncBesideDelete deletes an object of 1 GiB while it repeatedly syncs a few bytes, like the ledger. On a
// disk that discards, the longest sync is the result.
func BenchmarkSyncBesideDelete(b *testing.B) {
	const size = 1 << 30
	for _, c := range []struct {
		name   string
		atOnce int64
	}{{"at once", math.MaxInt64}, {"bit by bit", freeBytes}} {
		b.Run(c.name, func(b *testing.B) {
			d, err := OpenDir(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			d.freedAtOnce = c.atOnce
			ledger, err := os.Create(filepath.Join(b.TempDir(), "ledger"))
			if err != nil {
				b.Fatal(err)
			}
			defer ledger.Close() //nolint:errcheck // synced
			var longest, taken time.Duration
			for b.Loop() {
				if err := d.Put(b.Context(), "a", io.LimitReader(zeros{}, size), size); err != nil {
					b.Fatal(err)
				}
				longest = max(longest, longestSync(b, ledger, func() {
					began := time.Now()
					if err := d.Delete(b.Context(), "a"); err != nil {
						b.Error(err)
					}
					taken += time.Since(began)
				}))
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest-sync")
			b.ReportMetric(taken.Seconds()/float64(b.N), "s-delete")
		})
	}
}

// longestSync returns the longest sync of a few bytes while remove runs and for one more second, because blocks that
// are freed at once are discarded after that.
func longestSync(b *testing.B, ledger *os.File, remove func()) (longest time.Duration) {
	b.Helper()
	over := make(chan struct{})
	go func() {
		remove()
		time.AfterFunc(time.Second, func() { close(over) })
	}()
	for {
		if _, err := ledger.WriteString("a decision"); err != nil {
			b.Fatal(err)
		}
		at := time.Now()
		if err := ledger.Sync(); err != nil {
			b.Fatal(err)
		}
		longest = max(longest, time.Since(at))
		select {
		case <-over:
			return longest
		default:
		}
	}
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
