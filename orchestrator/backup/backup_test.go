package backup_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/backup"
	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/ledger/archive"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// natsServer returns a connection to a new NATS.
func natsServer(t testing.TB) *nats.Conn {
	t.Helper()
	s := must[*bus.Server](t)(bus.StartServer(bus.ServerConfig{Dir: t.TempDir()}))
	t.Cleanup(func() { check(t, s.Close()) })
	nc := must[*nats.Conn](t)(bus.Connect(t.Context(), bus.ConnConfig{Server: s, Name: "test"}))
	t.Cleanup(nc.Close)
	return nc
}

// cluster has a ledger with n batches, the oldest in the archive, a snapshot, buckets, keys and objects.
type cluster struct {
	nc     *nats.Conn
	ledger *ledger.JetStream
	source backup.Source
}

func begin() time.Time { return time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) }

func newCluster(t testing.TB, n int) *cluster {
	t.Helper()
	c := &cluster{nc: natsServer(t)}
	ctx := t.Context()
	store := must[objects.Store](t)(objects.Open(ctx, t.TempDir()))
	inStore := func(context.Context, string) (archive.Store, error) { return store, nil }
	c.ledger = must[*ledger.JetStream](t)(ledger.OpenJetStream(ctx, c.nc, ledger.Config{SegmentBatches: 40, OpenStore: inStore}))
	for i := range n {
		c.append(t, i)
		if i == n/2 {
			check(t, c.ledger.SaveSnapshot(ctx, uint64(i+1), []byte("the state")))
		}
	}
	must[ledger.Archived](t)(c.ledger.Archive(ctx, ledger.ArchiveConfig{Before: begin().Add(time.Hour * 1000)}))
	js := must[jetstream.JetStream](t)(jetstream.New(c.nc))
	for _, bucket := range []string{bus.LeaderBucket, "OUTBID_SECRETS"} {
		kv := must[jetstream.KeyValue](t)(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, Storage: jetstream.FileStorage}))
		for _, key := range []string{"a", "b", "c", "b"} {
			must[uint64](t)(kv.Put(ctx, key, []byte(bucket+" "+key)))
		}
		check(t, kv.Delete(ctx, "c"))
		revision := must[uint64](t)(kv.Create(ctx, "d", []byte("new"))) // with headers that name what it follows
		must[uint64](t)(kv.Update(ctx, "d", []byte("newer"), revision))
	}
	keys := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(keys, "inner"), 0o700))
	check(t, os.WriteFile(filepath.Join(keys, "inner", "seed"), []byte("seed"), 0o600))
	check(t, store.Put(ctx, "checkpoints/s-1/0/1", strings.NewReader("weights"), 7))
	c.source = backup.Source{Ledger: c.ledger, NATS: c.nc, Keys: keys, Store: store, Copy: true, Version: "test", Now: begin()}
	return c
}

// append appends batch i.
func (c *cluster) append(t testing.TB, i int) {
	t.Helper()
	text := "note"
	if i%50 == 7 {
		text = strings.Repeat("x", 200)
	}
	events := []*outbidv1.Event{{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Text: text}}}}
	must[*outbidv1.Batch](t)(c.ledger.Append(t.Context(), begin().Add(time.Duration(i)*time.Second), events))
}

func (c *cluster) save(t testing.TB) string {
	t.Helper()
	var out bytes.Buffer
	must[*backup.Manifest](t)(backup.Save(t.Context(), &out, c.source))
	path := filepath.Join(t.TempDir(), "backup")
	check(t, os.WriteFile(path, out.Bytes(), 0o600))
	return path
}

func open(t testing.TB, path string) *backup.File {
	t.Helper()
	f := must[*backup.File](t)(backup.Open(path))
	t.Cleanup(func() { check(t, f.Close()) })
	return f
}

func hashes(t testing.TB, l ledger.Ledger) (all []string) {
	t.Helper()
	check(t, l.Read(context.Background(), 1, func(b *outbidv1.Batch) error {
		all = append(all, string(b.GetHash()))
		return nil
	}))
	return all
}

func TestARestoredClusterHasEverything(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 100)
	want := hashes(t, c.ledger)
	f := open(t, c.save(t))
	c.append(t, 100) // after the pin
	check(t, f.Verify(t.Context()))
	nc, keys := natsServer(t), filepath.Join(t.TempDir(), "keys")
	store := must[objects.Store](t)(objects.Open(t.Context(), t.TempDir()))
	check(t, f.RestoreKeys(t.Context(), keys))
	now := begin().Add(time.Hour)
	check(t, f.Restore(t.Context(), backup.Target{NATS: nc, Store: store, Now: now}))

	l := must[*ledger.JetStream](t)(ledger.OpenJetStream(t.Context(), nc, ledger.Config{MustExist: true}))
	got := hashes(t, l)
	if len(got) != len(want)+1 || !slices.Equal(got[:len(want)], want) {
		t.Errorf("the ledger has %d batches, want the %d of the backup and a note", len(got), len(want))
	}
	check(t, l.Read(t.Context(), 101, func(b *outbidv1.Batch) error {
		if !b.GetTime().AsTime().Equal(now) {
			t.Errorf("the note is of %s, want %s", b.GetTime().AsTime(), now)
		}
		return nil
	}))
	if seq, data, err := l.LoadSnapshot(t.Context()); err != nil || seq != 51 || string(data) != "the state" {
		t.Errorf("the snapshot is %q of batch %d, %v", data, seq, err)
	}
	js := must[jetstream.JetStream](t)(jetstream.New(nc))
	secrets := must[jetstream.KeyValue](t)(js.KeyValue(t.Context(), "OUTBID_SECRETS"))
	names := must[[]string](t)(secrets.Keys(t.Context()))
	slices.Sort(names)
	if entry := must[jetstream.KeyValueEntry](t)(secrets.Get(t.Context(), "b")); string(entry.Value()) != "OUTBID_SECRETS b" || !slices.Equal(names, []string{"a", "b", "d"}) {
		t.Errorf("the bucket has %v and b is %q", names, entry.Value())
	}
	leader := must[jetstream.KeyValue](t)(js.KeyValue(t.Context(), bus.LeaderBucket))
	if term, err := leader.Create(t.Context(), "leader", nil); err != nil || term < 1e9 {
		t.Errorf("the next term is %d, %v: workers would ignore its orders", term, err)
	}
	if data, err := os.ReadFile(filepath.Join(keys, "inner", "seed")); err != nil || string(data) != "seed" {
		t.Errorf("the key is %q, %v", data, err)
	}
	if info, err := store.Stat(t.Context(), "checkpoints/s-1/0/1"); err != nil || info.Size != 7 {
		t.Errorf("the object is %v, %v", info, err)
	}
	m := f.Manifest
	m.Checksums, m.Hash = nil, ""
	wantManifest := backup.Manifest{
		Format: backup.Format, Version: "test", Time: begin(), Seq: 100, SeqTime: begin().Add(99 * time.Second), Snapshot: 51,
		Streams: map[string]int{"KV_OUTBID_LEADER": 0, "KV_OUTBID_SECRETS": 4}, Keys: 1, Objects: 1, ObjectBytes: 7, Copied: true,
	}
	if diff := cmp.Diff(wantManifest, m); diff != "" {
		t.Errorf("the manifest (-want +got):\n%s", diff)
	}
	if err := f.Restore(t.Context(), backup.Target{NATS: nc, Now: now}); err == nil || !strings.Contains(err.Error(), "already has a ledger") {
		t.Errorf("restoring again: %v", err)
	}
	if err := f.RestoreKeys(t.Context(), keys); err == nil {
		t.Error("the keys are replaced")
	}
}

// A restored bucket has its own sequence numbers: an entry can be changed with the revision that was read, and a restored cluster
// can be saved.
func TestARestoredClusterCanBeChangedAndSaved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	f := open(t, c.save(t))
	for range 2 {
		nc := natsServer(t)
		check(t, f.Restore(t.Context(), backup.Target{NATS: nc, Now: begin().Add(time.Hour)}))
		js := must[jetstream.JetStream](t)(jetstream.New(nc))
		secrets := must[jetstream.KeyValue](t)(js.KeyValue(t.Context(), "OUTBID_SECRETS"))
		for _, key := range []string{"a", "b", "d"} {
			entry := must[jetstream.KeyValueEntry](t)(secrets.Get(t.Context(), key))
			if _, err := secrets.Update(t.Context(), key, []byte("changed"), entry.Revision()); err != nil {
				t.Errorf("%s with the revision %d: %v", key, entry.Revision(), err)
			}
		}
		c.nc, c.source.NATS, c.source.Copy = nc, nc, false
		c.ledger = must[*ledger.JetStream](t)(ledger.OpenJetStream(t.Context(), nc, ledger.Config{MustExist: true}))
		c.source.Ledger = c.ledger
		f = open(t, c.save(t))
		if n := f.Manifest.Streams["KV_OUTBID_SECRETS"]; n != 4 {
			t.Errorf("the backup of the restored cluster has %d messages of a bucket", n)
		}
	}
}

// A flipped bit anywhere, or a missing end, is found before anything is restored.
func TestADamagedBackupIsFound(t *testing.T) {
	t.Parallel()
	path := newCluster(t, 20).save(t)
	whole := must[[]byte](t)(os.ReadFile(path))
	damaged := func(data []byte) error {
		p := filepath.Join(t.TempDir(), "damaged")
		check(t, os.WriteFile(p, data, 0o600))
		f, err := backup.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Verify(t.Context())
	}
	if err := damaged(whole); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	if err := damaged(whole[:len(whole)/2]); err == nil {
		t.Error("half a file is valid")
	}
	// Bits of the content; those of the archive's times, for example, mean nothing.
	at := bytes.Index(whole, []byte("weights"))
	flipped := slices.Clone(whole)
	flipped[at] ^= 1
	if err := damaged(flipped); err == nil {
		t.Error("a flipped bit of an object is not found")
	}
	f.Checksums["ledger.batches"] = "another"
	if err := f.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "ledger.batches of the backup is damaged") {
		t.Errorf("another checksum: %v", err)
	}
}

// BenchmarkBackup measures saving and restoring a ledger of 5,000 batches.
func BenchmarkBackup(b *testing.B) {
	c := newCluster(b, 5000)
	b.Run("save", func(b *testing.B) {
		for b.Loop() {
			c.save(b)
		}
	})
	f := open(b, c.save(b))
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			check(b, f.Restore(b.Context(), backup.Target{NATS: natsServer(b), Now: begin().Add(time.Hour * 2)}))
		}
	})
}
