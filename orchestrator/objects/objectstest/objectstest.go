// Package objectstest is the conformance suite of object stores. It tests everything on which workers and the server
// rely.
package objectstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/checksum"
	"github.com/outbid-dev/outbid/orchestrator/objects"
)

// Open returns an empty store.
type Open func(t *testing.T) objects.Store

// Run checks a store against its contract.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(context.Context, *testing.T, objects.Store)
	}{
		{"PutGet", testPutGet},
		{"Ranges", testRanges},
		{"LargeStream", testLargeStream},
		{"Replace", testReplace},
		{"NotFound", testNotFound},
		{"BadKeys", testBadKeys},
		{"ShortData", testShortData},
		{"Cancelled", testCancelled},
		{"List", testList},
		{"ListOrder", testListOrder},
		{"Delete", testDelete},
		{"Concurrent", testConcurrent},
		{"Files", testFiles},
		{"Check", testCheck},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			test.run(ctx, t, open(t))
		})
	}
}

// random is made once, because memory that is allocated and freed costs much more with the race detector.
var random = sync.OnceValue(func() []byte { //nolint:gochecknoglobals // a constant
	out := make([]byte, 36<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(out) // it never fails
	return out
})

// data returns bytes that differ from those of another seed. They must not be changed.
func data(seed byte, size int) []byte {
	from := int(seed) << 10
	return random()[from:][:size:size]
}

// put hides other methods of the reader, so that stores see a plain stream.
func put(ctx context.Context, t *testing.T, s objects.Store, key string, content []byte) {
	t.Helper()
	r := struct{ io.Reader }{bytes.NewReader(content)}
	if err := s.Put(ctx, key, r, int64(len(content))); err != nil {
		t.Fatal(err)
	}
}

func get(ctx context.Context, s objects.Store, key string) ([]byte, error) {
	return getOf(ctx, s, key, 0)
}

// getOf returns an object that should have a size. A buffer that grows costs much more with the race detector.
func getOf(ctx context.Context, s objects.Store, key string, size int) ([]byte, error) {
	r, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	content := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err = content.ReadFrom(r)
	return content.Bytes(), errors.Join(err, r.Close())
}

func want(ctx context.Context, t *testing.T, s objects.Store, key string, content []byte) {
	t.Helper()
	got, err := getOf(ctx, s, key, len(content))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%s has %d bytes, %v; want the %d that were put", key, len(got), err, len(content))
	}
}

func list(ctx context.Context, t *testing.T, s objects.Store, prefix string) []string {
	t.Helper()
	var keys []string
	err := s.List(ctx, prefix, func(i objects.Info) bool {
		keys = append(keys, i.Key)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func testPutGet(ctx context.Context, t *testing.T, s objects.Store) {
	for i, size := range []int{0, 1, 4096, 1 << 20, 17<<20 + 5} {
		key := fmt.Sprintf("checkpoints/digits-1/%d/000000000027-1.safetensors", i)
		content := data(byte(i), size)
		put(ctx, t, s, key, content)
		want(ctx, t, s, key, content)
		info, err := s.Stat(ctx, key)
		if err != nil || info.Key != key || info.Size != int64(size) || time.Since(info.Modified).Abs() > time.Hour {
			t.Errorf("stat of %s: %+v, %v", key, info, err)
		}
	}
	// Put stores only the given number of bytes.
	if err := s.Put(ctx, "part", strings.NewReader("abcdef"), 3); err != nil {
		t.Fatal(err)
	}
	want(ctx, t, s, "part", []byte("abc"))
	if s.String() == "" {
		t.Error("the store has no name")
	}
}

func testRanges(ctx context.Context, t *testing.T, s objects.Store) {
	content := data(1, 3<<20)
	put(ctx, t, s, "a/b", content)
	for _, c := range []struct{ from, n, want int64 }{
		{0, 1, 1}, {0, 3 << 20, 3 << 20}, {5, 100, 100}, {1<<20 + 7, 1 << 20, 1 << 20}, {3<<20 - 1, 1, 1}, {3<<20 - 5, 100, 5},
	} {
		r, err := s.GetRange(ctx, "a/b", c.from, c.n)
		if err != nil {
			t.Errorf("%d bytes from %d on: %v", c.n, c.from, err)
			continue
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, content[c.from:c.from+c.want]) {
			t.Errorf("%d bytes from %d on: %d others came, %v", c.n, c.from, len(got), err)
		}
	}
	for _, c := range []struct {
		key     string
		from, n int64
	}{{"a/b", 3 << 20, 1}, {"a/b", -1, 1}, {"a/b", 0, 0}, {"a/none", 0, 1}, {"../a", 0, 1}} {
		r, err := s.GetRange(ctx, c.key, c.from, c.n)
		if err == nil {
			_ = r.Close()
		}
		if missing := c.key == "a/none"; err == nil || errors.Is(err, objects.ErrNotFound) != missing || errors.Is(err, objects.ErrUnavailable) {
			t.Errorf("%d bytes of %q from %d on: %v", c.n, c.key, c.from, err)
		}
	}
	in := objects.NewRanged(ctx, s, "a/b", int64(len(content)))
	defer in.Close()
	if got, err := io.ReadAll(io.NewSectionReader(in, 0, 1<<40)); err != nil || !bytes.Equal(got, content) {
		t.Errorf("read in order it has %d bytes, %v", len(got), err)
	}
	p := make([]byte, 10)
	for _, off := range []int64{100, 0, 10, 3<<20 - 10} {
		if _, err := in.ReadAt(p, off); err != nil || !bytes.Equal(p, content[off:off+10]) {
			t.Errorf("at %d: %x, %v", off, p, err)
		}
	}
	longer := objects.NewRanged(ctx, s, "a/b", int64(len(content))+100)
	defer longer.Close()
	if got, err := io.ReadAll(io.NewSectionReader(longer, 0, 1<<40)); err == nil || errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("an object that is cut off gave %d bytes, %v", len(got), err)
	}
}

// testLargeStream stores a stream that is too large for one request.
func testLargeStream(ctx context.Context, t *testing.T, s objects.Store) {
	content := data(1, 35<<20+3)
	put(ctx, t, s, "large", content)
	want(ctx, t, s, "large", content)
}

func testReplace(ctx context.Context, t *testing.T, s objects.Store) {
	for i, size := range []int{1000, 10, 2000, 0} {
		content := data(byte(i), size)
		put(ctx, t, s, "a/b", content)
		want(ctx, t, s, "a/b", content)
	}
	if keys := list(ctx, t, s, ""); len(keys) != 1 {
		t.Errorf("keys %v", keys)
	}
}

func testNotFound(ctx context.Context, t *testing.T, s objects.Store) {
	put(ctx, t, s, "dir/file", []byte("x"))
	for _, key := range []string{"none", "dir", "dir/none", "dir/file/below", "no/such/dir"} {
		if _, err := get(ctx, s, key); !errors.Is(err, objects.ErrNotFound) {
			t.Errorf("get %s: %v", key, err)
		}
		if _, err := s.Stat(ctx, key); !errors.Is(err, objects.ErrNotFound) {
			t.Errorf("stat %s: %v", key, err)
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("delete %s: %v", key, err)
		}
	}
	want(ctx, t, s, "dir/file", []byte("x"))
}

func testBadKeys(ctx context.Context, t *testing.T, s objects.Store) {
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".a", "a/.b", "a b", "ä", "a\x00", "a\\b",
		"a*", "a?b", "a\n", strings.Repeat("a", 2000),
	} {
		_, statErr := s.Stat(ctx, key)
		_, getErr := get(ctx, s, key)
		for what, err := range map[string]error{
			"put": s.Put(ctx, key, strings.NewReader("x"), 1), "get": getErr, "stat": statErr, "delete": s.Delete(ctx, key),
		} {
			if err == nil || errors.Is(err, objects.ErrNotFound) || !strings.Contains(err.Error(), "object key") {
				t.Errorf("%s %q: %v", what, key, err)
			}
		}
	}
	for _, prefix := range []string{"/", "../", "a//", "a b", "a/.", "."} {
		if err := s.List(ctx, prefix, func(objects.Info) bool { return true }); err == nil {
			t.Errorf("listed %q", prefix)
		}
	}
	if err := s.Put(ctx, "a", strings.NewReader("x"), -1); err == nil {
		t.Error("put of an unknown size")
	}
}

func testShortData(ctx context.Context, t *testing.T, s objects.Store) {
	put(ctx, t, s, "a", []byte("old"))
	path := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, r := range map[string]io.Reader{
		"stream": struct{ io.Reader }{strings.NewReader("short")}, "seekable": strings.NewReader("short"), "file": f,
		"long stream": struct{ io.Reader }{bytes.NewReader(data(1, 17<<20))},
	} {
		size := int64(9)
		if name == "long stream" {
			size = 18 << 20
		}
		err := s.Put(ctx, "a", r, size)
		if err == nil || errors.Is(err, objects.ErrUnavailable) || errors.Is(err, objects.ErrFull) {
			t.Errorf("put of a %s that ends early: %v", name, err)
		}
	}
	broken := errors.New("broken")
	if err := s.Put(ctx, "a", io.MultiReader(strings.NewReader("x"), &failing{broken}), 9); !errors.Is(err, broken) {
		t.Errorf("put of a stream that fails: %v", err)
	}
	want(ctx, t, s, "a", []byte("old"))
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func testCancelled(ctx context.Context, t *testing.T, s objects.Store) {
	put(ctx, t, s, "a", []byte("old"))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Put(cancelled, "a", strings.NewReader("new"), 3); !errors.Is(err, context.Canceled) {
		t.Errorf("put with an ended context: %v", err)
	}
	if err := s.List(cancelled, "", func(objects.Info) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("list with an ended context: %v", err)
	}
	want(ctx, t, s, "a", []byte("old"))
}

func testList(ctx context.Context, t *testing.T, s objects.Store) {
	keys := []string{"a/1/x", "a/1/y", "a/10/x", "a/2/x", "b", "blobs/0f", "blobs/1e"}
	for _, key := range keys {
		put(ctx, t, s, key, []byte(key))
	}
	for prefix, want := range map[string][]string{
		"": keys, "a": keys[:4], "a/": keys[:4], "a/1": keys[:3], "a/1/": keys[:2], "a/1/x": keys[:1], "b": keys[4:],
		"blobs/": keys[5:], "blobs/1": keys[6:], "c": nil, "a/3/": nil, "b/": nil, "b/c/d": nil,
	} {
		if diff := cmp.Diff(want, list(ctx, t, s, prefix)); diff != "" {
			t.Errorf("list %q: %s", prefix, diff)
		}
	}
	calls := 0
	err := s.List(ctx, "", func(i objects.Info) bool {
		if i.Size != int64(len(i.Key)) || i.Modified.IsZero() {
			t.Errorf("listed %+v", i)
		}
		calls++
		return calls < 3
	})
	if err != nil || calls != 3 {
		t.Errorf("%d calls after f returned false at 3; %v", calls, err)
	}
}

// testListOrder checks that names with characters around the slash are listed in byte order.
func testListOrder(ctx context.Context, t *testing.T, s objects.Store) {
	keys := []string{"a-b", "a-b.c", "a.b/x", "a/b", "a/b-c", "a/b.c", "a0", "a_b", "aB", "ab/c"}
	for _, key := range keys {
		put(ctx, t, s, key, nil)
	}
	slices.Sort(keys)
	if diff := cmp.Diff(keys, list(ctx, t, s, "")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a/b", "a/b-c", "a/b.c"}, list(ctx, t, s, "a/b")); diff != "" {
		t.Error(diff)
	}
}

func testDelete(ctx context.Context, t *testing.T, s objects.Store) {
	put(ctx, t, s, "a/b/c", []byte("1"))
	put(ctx, t, s, "a/b/d", []byte("2"))
	for range 2 {
		if err := s.Delete(ctx, "a/b/c"); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"a/b/d"}, list(ctx, t, s, "")); diff != "" {
		t.Error(diff)
	}
	if err := s.Delete(ctx, "a/b/d"); err != nil {
		t.Error(err)
	}
	put(ctx, t, s, "a", []byte("now a file"))
	want(ctx, t, s, "a", []byte("now a file"))
}

// testConcurrent runs writers, a remover and readers on the same keys. Every read must return a complete object.
func testConcurrent(ctx context.Context, t *testing.T, s objects.Store) {
	var group sync.WaitGroup
	worker := func(f func(i int, key string) error) {
		group.Go(func() {
			for i := range 20 {
				if err := f(i, fmt.Sprintf("deep/er/key-%d", i%2)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		worker(func(i int, key string) error {
			content := bytes.Repeat([]byte{byte('a' + i)}, 1000*(i+1))
			err := objects.ErrUnavailable
			for try := 0; try < 20 && errors.Is(err, objects.ErrUnavailable); try++ {
				err = s.Put(ctx, key, bytes.NewReader(content), int64(len(content)))
			}
			return err
		})
		worker(func(_ int, key string) error {
			got, err := get(ctx, s, key)
			if errors.Is(err, objects.ErrNotFound) {
				return nil
			}
			if err == nil && (len(got)%1000 != 0 || len(got) != 1000*int(got[0]-'a'+1)) {
				err = fmt.Errorf("%d bytes that begin with %q", len(got), got[0])
			}
			return err
		})
	}
	worker(func(_ int, key string) error { return s.Delete(ctx, key) })
	worker(func(int, string) error { return s.List(ctx, "deep/", func(objects.Info) bool { return true }) })
	group.Wait()
}

func testFiles(ctx context.Context, t *testing.T, s objects.Store) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for i, size := range []int{0, 100, 100, 33 << 20} {
		content := data(byte(i), size)
		h := checksum.New()
		_, _ = h.Write(content)
		sums := h.Sums()
		if err := os.WriteFile(in, content, 0o600); err != nil {
			t.Fatal(err)
		}
		n, got, err := objects.PutFile(ctx, s, "files/x", in)
		if err != nil || n != int64(size) || got != sums {
			t.Fatalf("put file: %d bytes, sums %v, %v", n, got, err)
		}
		if _, err := os.Lstat(in); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is still there: %v", err)
		}
		want(ctx, t, s, "files/x", content)
		for range 2 { // the second time over itself
			n, got, err = objects.GetFile(ctx, s, "files/x", out)
			if err != nil || n != int64(size) || got != sums {
				t.Fatalf("get file: %d bytes, sums %v, %v", n, got, err)
			}
		}
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, content) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	if err := s.Delete(ctx, "files/x"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || len(got) != 33<<20 {
		t.Errorf("deleting the object took the file: %d bytes, %v", len(got), err)
	}
	if _, _, err := objects.PutFile(ctx, s, "files/y", out); err != nil { // a file that came from the store
		t.Errorf("put file back: %v", err)
	}
	if _, _, err := objects.GetFile(ctx, s, "files/none", out); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("get a file that is not there: %v", err)
	}
	for _, path := range []string{filepath.Join(dir, "none"), dir} {
		if _, _, err := objects.PutFile(ctx, s, "files/z", path); err == nil {
			t.Errorf("put %s", path)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left over: %v, %v", entries, err)
	}
	if keys := list(ctx, t, s, ""); !slices.Equal(keys, []string{"files/y"}) {
		t.Errorf("keys %v", keys)
	}
}

func testCheck(ctx context.Context, t *testing.T, s objects.Store) {
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
	if keys := list(ctx, t, s, ""); len(keys) != 0 {
		t.Errorf("the check left %v", keys)
	}
}
