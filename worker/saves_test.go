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
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

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
		offer := func(content string, saved *outbidv1.ProcessSaved) {
			t.Helper()
			x.offer(t, content, saved)
		}
		offer("weights", &outbidv1.ProcessSaved{Step: 4, Shard: &outbidv1.CheckpointShard{Rank: 1}})
		x.saved(t, "shard 1 4 ")
		offer("weights of rank 0", &outbidv1.ProcessSaved{Step: 4, Shard: &outbidv1.CheckpointShard{Bytes: 1, Sha256: "none"}})
		x.saved(t, "shard 0 4 ")
		key := x.fork.upload.whole.saveKey(&outbidv1.ProcessSaved{Step: 4, Shards: 2})
		for _, name := range []string{objects.ShardKey(key, 0), objects.ShardKey(key, 1)} {
			if _, err := r.store.Get(t.Context(), name); err != nil {
				t.Error(err)
			}
		}
		x.fork.Saved(&outbidv1.ProcessSaved{Step: 5, Path: "/none", Shard: &outbidv1.CheckpointShard{Rank: 1}})
		if got := <-x.saves; !strings.HasPrefix(got, "shard 1 5 /none") {
			t.Error(got)
		}
		offer(two, &outbidv1.ProcessSaved{Step: 4, Shards: 2, ShardBytes: 1})
		x.saved(t, "4 ")
		x.end(finished)
		r.bus.orch.awaitText(t, 1, "shard 1 4 of 7 bytes", "shard 0 4 of 17 bytes", "saved 4 ", "ended FINISHED")
		last := r.bus.orch.messages[len(r.bus.orch.messages)-2].GetSaved()
		want := manifest.Sum([]manifest.Shard{{Bytes: 17, SHA256: "a"}, {Bytes: 7, SHA256: "b"}})
		if last.GetShards() != 2 || last.GetShardBytes() != 24 || last.GetManifestSum() != want {
			t.Errorf("it reports %v", last)
		}
	})
}

const two = `{"shards": [{"bytes": 17, "sha256": "a"}, {"bytes": 7, "sha256": "b"}]}`

// offer saves a file with this content.
func (x *fakeTraining) offer(t *testing.T, content string, saved *outbidv1.ProcessSaved) {
	t.Helper()
	if err := os.MkdirAll(x.fork.files.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	saved.Path = filepath.Join(x.fork.files.dir, "save")
	if err := os.WriteFile(saved.GetPath(), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	x.fork.Saved(saved)
}

// A process gets its answer about a shard or a manifest only once the ledger has it.
func TestShardsAreAnsweredOnceTheyAreInTheLedger(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		as := assignment(1, 9, 0)
		as.Body.Gang = &outbidv1.Gang{Ranks: 2, PerDevice: true}
		r.bus.orch.assign(as)
		x := <-r.starts
		for _, c := range []struct {
			saved  *outbidv1.ProcessSaved
			told   string
			answer string
		}{
			{&outbidv1.ProcessSaved{Step: 4, Shard: &outbidv1.CheckpointShard{Rank: 1}}, "shard 1 4 ", "shard 1 4 "},
			{&outbidv1.ProcessSaved{Step: 4, Shards: 2}, "saved 4 ", "4 "},
		} {
			r.bus.orch.with(func() { r.bus.orch.mute = true })
			x.offer(t, two, c.saved)
			r.bus.orch.awaitText(t, 1, c.told)
			synctest.Wait()
			select {
			case got := <-x.saves:
				t.Errorf("it got %q before the ledger had it", got)
			default:
			}
			r.bus.orch.with(func() { r.bus.orch.mute = false })
			x.saved(t, c.answer)
		}
		x.end(finished)
		r.bus.orch.awaitText(t, 1, "ended FINISHED")
	})
}

// A trial whose process writes something else than a manifest fails, and its checkpoint is not reported.
func TestABadManifestFailsTheTrial(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"weights": "invalid character", `{"shards": [{"bytes": 1, "sha256": "a"}]}`: "must have 2, has 1",
		`{"shards": [{"bytes": 17, "sha256": "a"}, {"bytes": -7, "sha256": "b"}]}`:                 "shard 1 has -7 bytes",
		`{"shards": [{"bytes": 9223372036854775807, "sha256": "a"}, {"bytes": 1, "sha256": "b"}]}`: "their sizes are too large",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				as := assignment(1, 9, 0)
				as.Body.Gang = &outbidv1.Gang{Ranks: 2, PerDevice: true}
				r.bus.orch.assign(as)
				x := <-r.starts
				x.offer(t, content, &outbidv1.ProcessSaved{Step: 4, Shards: 2, ShardBytes: 5})
				r.bus.orch.awaitText(t, 1, "ERROR: the checkpoint of step 4: the manifest of the shards: ", want)
				if heard := r.bus.orch.heard(1); strings.Contains(heard, "saved") {
					t.Error(heard)
				}
			})
		})
	}
}

// While rank 0 waits for the shards of other nodes, its silence does not count as a hang; after its next message it does.
func TestWaitingForShardsIsNoHang(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(t *testing.T, x *fakeTraining){
		"a report": func(_ *testing.T, x *fakeTraining) { x.report(1) },
		"the manifest": func(t *testing.T, x *fakeTraining) {
			t.Helper()
			x.offer(t, two, &outbidv1.ProcessSaved{Step: 4, Shards: 2})
		},
		"its shard once more": func(t *testing.T, x *fakeTraining) {
			t.Helper()
			x.offer(t, two, &outbidv1.ProcessSaved{Step: 4, Shard: &outbidv1.CheckpointShard{}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				as := assignment(1, 9, 0)
				as.Body.Gang = &outbidv1.Gang{Ranks: 2, PerDevice: true}
				as.Body.HangTimeout = durationpb.New(time.Minute)
				r.bus.orch.assign(as)
				x := <-r.starts
				x.fork.Waiting()
				x.offer(t, two, &outbidv1.ProcessSaved{Step: 4, Shard: &outbidv1.CheckpointShard{Rank: 1}}) // another rank's
				x.saved(t, "shard 1 4 ")
				pass(5 * time.Minute)
				select {
				case <-x.killed:
					t.Fatal("it was killed while it waited")
				default:
				}
				next(t, x)
				synctest.Wait()
				began := time.Now()
				<-x.killed
				if d := time.Since(began); d > time.Minute || d < 59*time.Second {
					t.Errorf("killed after %s", d)
				}
				r.bus.orch.awaitText(t, 1, "HANG: sent nothing for 1m0s")
			})
		})
	}
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
		f := assembleFork(
			&Config{Store: Direct(store), files: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}, newOutbox(), &outbidv1.ForkRef{LeaseId: 1},
			&outbidv1.AssignmentBody{Devices: []int32{0}, Gang: g, Start: &outbidv1.Checkpoint{Key: key, Step: 4, Shards: 3}}, secrets{}, func() {},
		)
		if err := os.MkdirAll(f.files.dir, 0o700); err != nil {
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
