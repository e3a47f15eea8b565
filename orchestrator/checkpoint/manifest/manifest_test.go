package manifest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/manifest"
)

const two = `{"directories": false, "metadata": "", "shards": [{"bytes": 3, "sha256": "a"}, {"bytes": 4, "sha256": "b"}]}`

func TestANodeNeedsTheShardsOfItsRanks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "start.shards")
	if err := os.WriteFile(path, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.ReadFile(path, 2)
	if err != nil || m.Shards[1] != (manifest.Shard{Bytes: 4, SHA256: "b"}) {
		t.Fatalf("it is read as %+v, %v", m, err)
	}
	for _, c := range []struct {
		directories         bool
		first, count, world int32
		want                []int32
	}{
		{first: 1, count: 1, world: 2, want: []int32{1}},
		{first: 0, count: 2, world: 2, want: []int32{0, 1}},
		{first: 1, count: 1, world: 4, want: []int32{0, 1}},
		{first: 0, count: 1, world: 1, want: []int32{0, 1}},
		{directories: true, first: 1, count: 1, world: 2, want: []int32{0, 1}},
	} {
		m.Directories = c.directories
		if got := m.Needed(c.first, c.count, c.world); !slices.Equal(got, c.want) {
			t.Errorf("%+v: it needs %v", c, got)
		}
	}
}

func TestASumSaysWhetherShardsAreEqual(t *testing.T) {
	t.Parallel()
	one, other := manifest.Shard{Bytes: 1, SHA256: "a"}, manifest.Shard{Bytes: 2, SHA256: "b"}
	seen := map[string]int{}
	for i, shards := range [][]manifest.Shard{
		nil, {one}, {other}, {one, other}, {other, one}, {one, one}, {{Bytes: 2, SHA256: "a"}}, {{Bytes: 1, SHA256: "a\" 1 \"a"}},
	} {
		sum := manifest.Sum(shards)
		if before, found := seen[sum]; found {
			t.Errorf("%v has the sum of list %d", shards, before)
		}
		if sum != manifest.Sum(slices.Clone(shards)) {
			t.Errorf("%v has two sums", shards)
		}
		seen[sum] = i
	}
}

func TestADamagedManifestIsRejected(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{`: "unexpected end", two: "must have 3, has 2", `{"shards": [{}, {}, {}]}`: "shard 0 has no SHA-256",
		`{"shards": [{"sha256": "a"}, {"sha256": "b", "bytes": -1}, {}]}`: "shard 1 has -1 bytes",
	} {
		if _, err := manifest.Parse([]byte(text), 3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := manifest.ReadFile(filepath.Join(t.TempDir(), "none"), 3); err == nil {
		t.Error("a file that does not exist was read")
	}
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, manifest.MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.ReadFile(path, 3); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a large file: %v", err)
	}
}
