package worker

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/manifest"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// uploads stores a fork's checkpoints, and the shards of each of its processes, at the same time.
type uploads struct {
	fork *fork
	// whole stores checkpoints that are one file, and the manifests of those with shards.
	whole *uploader

	mu     sync.Mutex
	closed bool
	shards map[int32]*uploader // of each rank
}

func newUploads(f *fork) *uploads {
	return &uploads{fork: f, whole: newUploader(f), shards: map[int32]*uploader{}}
}

// offer takes a file over from the training code.
func (u *uploads) offer(s *outbidv1.ProcessSaved) {
	own := u.whole
	if s.GetShard() != nil {
		own = u.ofRank(s.GetShard().GetRank())
	}
	own.offer(s)
}

func (u *uploads) ofRank(rank int32) *uploader {
	u.mu.Lock()
	defer u.mu.Unlock()
	own := u.shards[rank]
	if own == nil {
		own = newUploader(u.fork)
		u.shards[rank] = own
	}
	if u.closed {
		own.stop()
	}
	return own
}

// all returns the uploaders.
func (u *uploads) all() []*uploader {
	u.mu.Lock()
	defer u.mu.Unlock()
	found := []*uploader{u.whole}
	for _, own := range u.shards {
		found = append(found, own)
	}
	return found
}

// idle reports whether everything that was offered is in the store.
func (u *uploads) idle() bool {
	for _, own := range u.all() {
		if !own.idle() {
			return false
		}
	}
	return true
}

// stop drops files that are not stored yet.
func (u *uploads) stop() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	for _, own := range u.all() {
		own.stop()
	}
}

// close stops the uploaders and waits for them.
func (u *uploads) close() {
	u.stop()
	for _, own := range u.all() {
		own.close()
	}
}

// saveName returns the name of a file's span in a trace.
func saveName(s *outbidv1.ProcessSaved) string {
	if s.GetShard() != nil {
		return fmt.Sprintf("save shard %d", s.GetShard().GetRank())
	}
	return "save"
}

// announce tells the orchestrator about a stored file, and then the training code. Shards and their manifest are
// answered once the message is in the ledger: the manifest must not be there before a shard of another node, nor a later
// shard before the manifest.
func (u *uploader) announce(s *outbidv1.ProcessSaved, stored *storedFile) {
	f := u.fork
	if shard := s.GetShard(); shard != nil {
		sums := &outbidv1.CheckpointShard{
			Rank: shard.GetRank(), Bytes: stored.size, Sha256: stored.sums.SHA256, Crc64Nvme: stored.sums.CRC64,
		}
		u.awaitLedger(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Shard{Shard: &outbidv1.SavedShard{Step: s.GetStep(), Shard: sums}}})
		done := &outbidv1.SaveDone{Fork: f.ref, Step: s.GetStep(), Shard: sums}
		f.link.tell(func(t training) { t.ShardDone(done) })
		return
	}
	saved := &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{
		Key: stored.key, Step: s.GetStep(), Bytes: stored.size, Sha256: stored.sums.SHA256, Crc64Nvme: stored.sums.CRC64,
		Time: timestamppb.New(time.Now()), Metric: s.Metric, Shards: s.GetShards(), ShardBytes: stored.shardBytes, ManifestSum: stored.manifest,
	}}}
	if s.GetShards() > 0 {
		u.awaitLedger(saved)
	} else {
		f.messages.queueMessage(saved)
	}
	f.link.answerSave(s, "")
}

// awaitLedger queues a message, and returns once it is in the ledger or the uploader is stopped.
func (u *uploader) awaitLedger(m *outbidv1.UplinkMessage) {
	select {
	case <-u.fork.messages.queueAwaited(m):
	case <-u.ctx.Done():
	}
}

// manifestError means that the process wrote a manifest that cannot be used.
type manifestError struct{ err error }

// Error implements error.
func (e *manifestError) Error() string { return e.err.Error() }

// manifestOf reads the manifest in an offered file and returns its shards' sum and size, or nothing for other files.
func manifestOf(s *outbidv1.ProcessSaved) (sum string, size int64, err error) {
	if s.GetShards() == 0 {
		return "", 0, nil
	}
	m, err := manifest.ReadFile(s.GetPath(), s.GetShards())
	if errors.Is(err, os.ErrNotExist) {
		return "", 0, err
	}
	if err != nil {
		return "", 0, &manifestError{err}
	}
	for _, shard := range m.Shards {
		if size += shard.Bytes; size < 0 {
			return "", 0, &manifestError{errors.New("the manifest of the shards: their sizes are too large")}
		}
	}
	return manifest.Sum(m.Shards), size, nil
}

// saveKey returns where a file of the training code is stored.
func (u *uploader) saveKey(s *outbidv1.ProcessSaved) string {
	f, format := u.fork, objects.Safetensors
	switch {
	case f.body.GetWorkload().GetProgram() != nil:
		format = objects.Opaque
	case s.GetShard() != nil || s.GetShards() > 0:
		format = objects.Sharded
	}
	key := objects.Checkpoint{
		Sweep: f.ref.GetSweep(), Trial: f.ref.GetTrial(), Step: s.GetStep(), LeaseID: f.ref.GetLeaseId(), Format: format,
	}.Key()
	if s.GetShard() != nil {
		return objects.ShardKey(key, s.GetShard().GetRank())
	}
	return key
}
