package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/manifest"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	maxBlob = 256 << 20
	// pieceBytes is the amount of a file in one message.
	pieceBytes = 256 << 10
)

// storeService moves functions, checkpoints and soups between clients and the store.
type storeService struct {
	lookup
	store objects.Store
	blobs *blobBook
}

// PutBlob implements the service.
func (s *storeService) PutBlob(stream grpc.ClientStreamingServer[outbidv1.PutBlobRequest, outbidv1.PutBlobResponse]) error {
	who := caller(stream.Context())
	up, err := s.blobs.begin(stream.Context(), who)
	if err != nil {
		return err
	}
	kept := ""
	defer func() { up.end(kept) }()
	f, err := os.CreateTemp("", "outbid-blob-*")
	if err != nil {
		return fmt.Errorf("receive a blob: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	h := sha256.New()
	size, err := receiveBlob(stream.Recv, f, h, up)
	if err != nil {
		return err
	}
	sha := hex.EncodeToString(h.Sum(nil))
	s.blobs.protect(sha, who.Tenant)
	if err := s.keepBlob(stream.Context(), sha, f, size); err != nil {
		return err
	}
	kept = sha
	return stream.SendAndClose(&outbidv1.PutBlobResponse{Sha256: sha})
}

// receiveBlob writes the received data to the file and the hash, and returns the blob's size.
func receiveBlob(
	recv func() (*outbidv1.PutBlobRequest, error), f io.Writer, h hash.Hash, up *upload,
) (int64, error) {
	size := int64(0)
	for {
		piece, err := recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		size += int64(len(piece.GetData()))
		if size > maxBlob {
			return 0, fieldError("data", "a function may have at most %d MiB; load its data on the worker instead of "+
				"pickling it", maxBlob>>20)
		}
		if err := up.add(int64(len(piece.GetData()))); err != nil {
			return 0, err
		}
		if _, err := io.MultiWriter(f, h).Write(piece.GetData()); err != nil {
			return 0, fmt.Errorf("receive a blob: %w", err)
		}
	}
	if size == 0 {
		return 0, fieldError("data", "is empty")
	}
	return size, nil
}

// keepBlob stores a blob unless the store has it.
func (s *storeService) keepBlob(ctx context.Context, sha string, f io.ReadSeeker, size int64) error {
	if info, err := s.store.Stat(ctx, objects.BlobKey(sha)); err == nil && info.Size == size {
		return nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read blob back: %w", err)
	}
	if err := s.store.Put(ctx, objects.BlobKey(sha), f, size); err != nil {
		return fmt.Errorf("store blob: %w", err)
	}
	return nil
}

// GetCheckpoint implements the service.
func (s *storeService) GetCheckpoint(
	req *outbidv1.GetCheckpointRequest, stream grpc.ServerStreamingServer[outbidv1.GetCheckpointResponse],
) error {
	trial, err := s.trial(req.GetSweep(), req.GetTrial())
	if err != nil {
		return err
	}
	cp, err := s.chooseCheckpoint(trial, req)
	if err != nil {
		return err
	}
	if req.Shard != nil {
		if cp, err = s.shard(stream.Context(), cp, req.GetShard()); err != nil {
			return err
		}
	}
	r, err := s.openCheckpoint(stream.Context(), cp.GetKey())
	if err != nil {
		return err
	}
	defer r.Close()
	return sendPieces(r, "checkpoint "+cp.GetKey(), cp.GetSha256(), func(first bool, data []byte) error {
		piece := &outbidv1.GetCheckpointResponse{Data: data}
		if first {
			piece.Checkpoint = cp
		}
		return stream.Send(piece)
	})
}

func (s *storeService) openCheckpoint(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := s.store.Get(ctx, key)
	if errors.Is(err, objects.ErrNotFound) {
		return nil, status.Errorf(codes.NotFound, "checkpoint %s is no longer in the store", key)
	}
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	return r, nil
}

// shard returns a copy of a checkpoint with the key, the size and the SHA-256 of one shard.
func (s *storeService) shard(ctx context.Context, cp *outbidv1.Checkpoint, rank int32) (*outbidv1.Checkpoint, error) {
	if rank < 0 || rank >= cp.GetShards() {
		return nil, fieldError("shard", "must be below the checkpoint's number of shards, %d, got %d", cp.GetShards(), rank)
	}
	r, err := s.openCheckpoint(ctx, cp.GetKey())
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, manifest.MaxBytes))
	if err != nil {
		return nil, fmt.Errorf("read checkpoint %s: %w", cp.GetKey(), err)
	}
	m, err := manifest.Parse(data, cp.GetShards())
	if err != nil {
		return nil, status.Errorf(codes.DataLoss, "checkpoint %s is damaged: %v", cp.GetKey(), err)
	}
	shard := proto.CloneOf(cp)
	shard.Key, shard.Bytes, shard.Sha256, shard.Crc64Nvme = objects.ShardKey(cp.GetKey(), rank), m.Shards[rank].Bytes, m.Shards[rank].SHA256, ""
	return shard, nil
}

func (s *storeService) chooseCheckpoint(t *outbidv1.Trial, req *outbidv1.GetCheckpointRequest) (*outbidv1.Checkpoint, error) {
	if req.Step != nil || !req.GetBest() {
		return pickCheckpoint(t, req.Step)
	}
	sweep, err := s.control.Sweep(t.GetSweep())
	if err != nil {
		return nil, err
	}
	if c := state.BestOf(t.GetCheckpoints(), sweep.GetSpec().GetMode() == "max"); c != nil {
		return c, nil
	}
	return pickCheckpoint(t, nil)
}

func pickCheckpoint(t *outbidv1.Trial, step *int64) (*outbidv1.Checkpoint, error) {
	var found *outbidv1.Checkpoint
	for _, c := range t.GetCheckpoints() {
		if step == nil && c.GetUnreadable() || step != nil && c.GetStep() != *step {
			continue
		}
		if found == nil || c.GetStep() >= found.GetStep() {
			found = c
		}
	}
	switch {
	case found != nil:
		return found, nil
	case step != nil:
		return nil, status.Errorf(codes.NotFound, "trial %s/%d does not have a checkpoint of step %d; GetTrial lists those it "+
			"keeps", t.GetSweep(), t.GetNumber(), *step)
	}
	return nil, status.Errorf(codes.NotFound, "trial %s/%d does not have a checkpoint", t.GetSweep(), t.GetNumber())
}

// sendPieces sends a file in pieces; the first may be empty. If sha is not empty and the file's SHA-256 differs, it
// returns an error at the end.
func sendPieces(r io.Reader, what, sha string, send func(first bool, data []byte) error) error {
	h := sha256.New()
	r = io.TeeReader(r, h)
	for first := true; ; first = false {
		buf := make([]byte, pieceBytes) // gRPC may still be sending the previous buffer
		n, err := io.ReadFull(r, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read %s: %w", what, err)
		}
		if n > 0 || first {
			if sendErr := send(first, buf[:n]); sendErr != nil {
				return sendErr
			}
		}
		if err != nil {
			break
		}
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sha != "" && sum != sha {
		return status.Errorf(codes.DataLoss, "%s is damaged: its SHA-256 is %s instead of %s", what, sum, sha)
	}
	return nil
}

// ListReports implements the service.
func (s *sweepService) ListReports(
	req *outbidv1.ListReportsRequest, stream grpc.ServerStreamingServer[outbidv1.ListReportsResponse],
) error {
	if _, err := s.sweep(req.GetSweep()); err != nil {
		return err
	}
	if req.Trial != nil {
		if _, err := s.trial(req.GetSweep(), req.GetTrial()); err != nil {
			return err
		}
	}
	superseded, err := s.control.Superseded(req.GetSweep())
	if err != nil {
		return err
	}
	chunk, size := new(outbidv1.ListReportsResponse), 0
	err = s.control.Reports(stream.Context(), req.GetSweep(), req.Trial, func(trial int32, r *outbidv1.Report) error {
		one := &outbidv1.TrialReport{Trial: trial, Report: r, Superseded: superseded(trial, r)}
		chunk.Reports = append(chunk.Reports, one)
		if size += proto.Size(one); size < maxChunk {
			return nil
		}
		full := chunk
		chunk, size = new(outbidv1.ListReportsResponse), 0
		return stream.Send(full)
	})
	if err != nil || len(chunk.GetReports()) == 0 {
		return err
	}
	return stream.Send(chunk)
}
