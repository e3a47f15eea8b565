package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/manifest"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/gang"
	"github.com/outbid-dev/outbid/worker/health"
)

// shardsAtOnce is how many shards of a start checkpoint are fetched at the same time.
const shardsAtOnce = 4

// checkpoint fetches the start checkpoint, or the manifest of its shards, and returns its path, or "" for a fresh start.
func (s *starter) checkpoint(ctx context.Context, f *fork) (string, error) {
	c := f.body.GetStart()
	if c.GetKey() == "" {
		return "", nil
	}
	dir := f.files.trialDir()
	if f.body.GetWorkload().GetProgram() != nil {
		dir = f.files.workerDir() // the worker unpacks it
	}
	path := filepath.Join(dir, "start"+filepath.Ext(c.GetKey()))
	began := time.Now()
	err := s.fetchCheckpoint(ctx, f, c.GetKey(), c.GetSha256(), path)
	f.telemetry.trace("restore", began, c.GetStep(), err)
	return path, err
}

// fetchCheckpoint fetches one object of the start checkpoint, and compares its SHA-256 unless it is unknown.
func (s *starter) fetchCheckpoint(ctx context.Context, f *fork, key, sha, path string) error {
	step := f.body.GetStart().GetStep()
	var size int64
	var sums checksum.Sums
	err := s.retryStore(ctx, f, "its checkpoint", func() (err error) {
		size, sums, err = objects.GetFile(ctx, f.store(), key, path)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case errors.Is(err, objects.ErrNotFound):
		return fail(outbidv1.FailureKind_FAILURE_KIND_CHECKPOINT, "the checkpoint of step %d (%s) is not in %s", step, key, f.store())
	case health.OfNode(err):
		return s.nodeFailure(err)
	case err != nil: // the checkpoint may be intact: do not fall back to the one before
		return fail(outbidv1.FailureKind_FAILURE_KIND_NODE, "the checkpoint of step %d cannot be read on node %s: %s",
			step, s.cfg.Node, oneLine(err))
	case sha != "" && sums.SHA256 != sha:
		return fail(outbidv1.FailureKind_FAILURE_KIND_CHECKPOINT, "the checkpoint of step %d (%s) is damaged: its %d "+
			"bytes have SHA-256 %.12s, not %.12s", step, key, size, sums.SHA256, sha)
	}
	return nil
}

// shards fetches the shards of the start checkpoint that the processes here need, given the path of its manifest.
func (s *starter) shards(ctx context.Context, f *fork, path string) ([]*outbidv1.ShardFile, error) {
	c := f.body.GetStart()
	if c.GetShards() == 0 {
		return nil, nil
	}
	m, err := manifest.ReadFile(path, c.GetShards())
	if err != nil {
		return nil, fail(outbidv1.FailureKind_FAILURE_KIND_CHECKPOINT, "the checkpoint of step %d (%s) is damaged: %s",
			c.GetStep(), c.GetKey(), oneLine(err))
	}
	first, count, world := int32(0), int32(1), int32(1)
	if g := f.body.GetGang(); g != nil {
		first, count, world = g.GetFirstRank(), int32(gang.Size(g, len(f.body.GetDevices()))), g.GetRanks()
	}
	var found []*outbidv1.ShardFile
	fetching, ctx := errgroup.WithContext(ctx)
	fetching.SetLimit(shardsAtOnce)
	for _, rank := range m.Needed(first, count, world) {
		file := &outbidv1.ShardFile{Rank: rank, Path: filepath.Join(f.files.trialDir(), fmt.Sprintf("start-%d.safetensors", rank))}
		found = append(found, file)
		fetching.Go(func() error {
			return s.fetchCheckpoint(ctx, f, objects.ShardKey(c.GetKey(), rank), m.Shards[rank].SHA256, file.GetPath())
		})
	}
	began := time.Now()
	err = fetching.Wait()
	f.telemetry.trace("restore shards", began, c.GetStep(), err)
	return found, err
}
