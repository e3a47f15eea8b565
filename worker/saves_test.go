package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/manifest"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The shards of ranks are stored for themselves, and the checkpoint is announced only with its manifest.
func TestShardsAreStoredBeforeTheirManifest(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		as := assignment(1, 9, 0)
		as.Body.Gang = &outbidv1.Gang{Ranks: 2, PerDevice: true}
		r.bus.orch.assign(as)
		x := <-r.starts
		offer := func(saved *outbidv1.ProcessSaved) {
			t.Helper()
			if err := os.MkdirAll(x.fork.scratch(), 0o700); err != nil {
				t.Fatal(err)
			}
			saved.Path = filepath.Join(x.fork.scratch(), "save")
			if err := os.WriteFile(saved.GetPath(), []byte("weights"), 0o600); err != nil {
				t.Fatal(err)
			}
			x.fork.Saved(saved)
		}
		offer(&outbidv1.ProcessSaved{Step: 4, Shard: &outbidv1.CheckpointShard{Rank: 1}})
		x.saved(t, "shard 1 4 ")
		offer(&outbidv1.ProcessSaved{Step: 4, Shard: &outbidv1.CheckpointShard{}})
		x.saved(t, "shard 0 4 ")
		key := x.fork.saveKey(&outbidv1.ProcessSaved{Step: 4, Shards: 2})
		for _, name := range []string{objects.ShardKey(key, 0), objects.ShardKey(key, 1)} {
			if _, err := r.store.Get(t.Context(), name); err != nil {
				t.Error(err)
			}
		}
		x.fork.Saved(&outbidv1.ProcessSaved{Step: 5, Path: "/none", Shard: &outbidv1.CheckpointShard{Rank: 1}})
		if got := <-x.saves; !strings.HasPrefix(got, "shard 1 5 /none") {
			t.Error(got)
		}
		offer(&outbidv1.ProcessSaved{Step: 4, Shards: 2, ShardBytes: 14})
		x.saved(t, "4 ")
		x.end(finished)
		r.bus.orch.awaitText(t, 1, "saved 4 ", "ended FINISHED")
	})
}

// A trial gets the shards that its node needs, and does not start from damaged ones.
func TestAStartWithShards(t *testing.T) {
	t.Parallel()
	const key = "checkpoints/s-1/0/000000000004-9.shards"
	store := inMemory{}
	described := manifest.Manifest{}
	for rank, content := range []string{"zero", "one", "two"} {
		h := checksum.New()
		_, _ = h.Write([]byte(content))
		store[objects.ShardKey(key, int32(rank))] = []byte(content)
		described.Shards = append(described.Shards, manifest.Shard{Bytes: int64(len(content)), SHA256: h.Sums().SHA256})
	}
	start := func(g *outbidv1.Gang) ([]string, error) {
		f := &fork{
			cfg: &Config{Store: Direct(store), files: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}, ref: &outbidv1.ForkRef{LeaseId: 1},
			body: &outbidv1.AssignmentBody{Devices: []int32{0}, Gang: g, Start: &outbidv1.Checkpoint{Key: key, Step: 4, Shards: 3}},
		}
		if err := os.MkdirAll(f.scratch(), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if store[key], err = json.Marshal(described); err != nil {
			t.Fatal(err)
		}
		s := &starter{cfg: *f.cfg}
		path, err := s.checkpoint(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		files, err := s.shards(context.Background(), f, path)
		var found []string
		for _, file := range files {
			data, _ := os.ReadFile(file.GetPath())
			found = append(found, string(data))
		}
		return found, err
	}
	same := &outbidv1.Gang{FirstRank: 1, Ranks: 3, PerDevice: true}
	if found, err := start(same); err != nil || strings.Join(found, " ") != "one" {
		t.Errorf("with as many ranks it gets %q, %v", found, err)
	}
	if found, err := start(nil); err != nil || strings.Join(found, " ") != "zero one two" {
		t.Errorf("alone it gets %q, %v", found, err)
	}
	store[objects.ShardKey(key, 1)] = []byte("bad")
	_, err := start(same)
	if e := (*failure)(nil); !errors.As(err, &e) || e.kind != outbidv1.FailureKind_FAILURE_KIND_CHECKPOINT || !strings.Contains(e.detail, "is damaged") {
		t.Errorf("a damaged shard: %v", err)
	}
	described.Shards = described.Shards[:2]
	if _, err = start(same); err == nil || !strings.Contains(err.Error(), "must have 3, has 2") {
		t.Errorf("a manifest that does not fit: %v", err)
	}
}
