package objects

import (
	"fmt"
	"strconv"
	"strings"
)

// BlobKey returns the key of a function, given the hex SHA-256 of its content.
func BlobKey(sum string) string { return "blobs/" + sum }

// Checkpoints is the prefix of all checkpoint keys.
const Checkpoints = "checkpoints/"

// CheckpointsOf returns the prefix of a sweep's checkpoint keys.
func CheckpointsOf(sweep string) string { return Checkpoints + sweep + "/" }

// Format is the format of a checkpoint, and the suffix of its key.
type Format string

const (
	// Safetensors is the format of the SDK.
	Safetensors Format = "safetensors"
	// Opaque is any other format of a program.
	Opaque Format = "ckpt"
	// Sharded is the manifest of a checkpoint with shards.
	Sharded Format = "shards"
)

// Checkpoint is the information in the key of a checkpoint.
type Checkpoint struct {
	Sweep string
	Trial int32
	Step  int64
	// LeaseID is the lease under which it was saved.
	LeaseID uint64
	Format  Format
}

// Key returns the key of the checkpoint in the store.
func (c Checkpoint) Key() string {
	return fmt.Sprintf("%s%d/%012d-%d.%s", CheckpointsOf(c.Sweep), c.Trial, c.Step, c.LeaseID, c.Format)
}

// ParseCheckpoint parses a key. It returns false unless Key would return the same.
func ParseCheckpoint(key string) (Checkpoint, bool) {
	var c Checkpoint
	parts := strings.Split(strings.TrimPrefix(key, Checkpoints), "/")
	if len(parts) != 3 {
		return c, false
	}
	stem, format, _ := strings.Cut(parts[2], ".")
	step, lease, _ := strings.Cut(stem, "-")
	trial, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil {
		return c, false
	}
	c = Checkpoint{Sweep: parts[0], Trial: int32(trial), Format: Format(format)}
	if c.Step, err = strconv.ParseInt(step, 10, 64); err != nil || c.Step < 0 || c.Trial < 0 {
		return c, false
	}
	if c.LeaseID, err = strconv.ParseUint(lease, 10, 64); err != nil {
		return c, false
	}
	return c, (c.Format == Safetensors || c.Format == Opaque || c.Format == Sharded) && CheckKey(key) == nil && key == c.Key()
}

// outerSuffix is the suffix for the key of an outer optimizer's state.
const outerSuffix = ".outer"

// OuterKey returns the key of an outer optimizer's state for a checkpoint.
func OuterKey(checkpoint string) string { return checkpoint + outerSuffix }

// ShardKey returns the key of a checkpoint's shard.
func ShardKey(checkpoint string, rank int32) string { return fmt.Sprintf("%s.%d", checkpoint, rank) }

// ParseShard parses the key of a shard. It returns false unless ShardKey would return the same.
func ParseShard(key string) (Checkpoint, int32, bool) {
	dot := strings.LastIndexByte(key, '.')
	if dot < 0 {
		return Checkpoint{}, 0, false
	}
	c, ok := ParseCheckpoint(key[:dot])
	rank, err := strconv.ParseInt(key[dot+1:], 10, 32)
	ok = ok && c.Format == Sharded && err == nil && rank >= 0 && key == ShardKey(c.Key(), int32(rank))
	return c, int32(rank), ok
}

// CheckpointAt returns the checkpoint to which an object belongs: its key is that of the checkpoint, or below it, or
// that of its outer state or of a shard.
func CheckpointAt(key string) (Checkpoint, bool) {
	if c, _, ok := ParseShard(key); ok {
		return c, true
	}
	parts := strings.SplitN(key, "/", 5)
	return ParseCheckpoint(strings.TrimSuffix(strings.Join(parts[:min(4, len(parts))], "/"), outerSuffix))
}

// Of reports whether a trial saved the checkpoint under a lease.
func (c Checkpoint) Of(sweep string, trial int32, leaseID uint64) bool {
	return c.Sweep == sweep && c.Trial == trial && c.LeaseID == leaseID
}
