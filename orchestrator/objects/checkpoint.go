package objects

import (
	"fmt"
	"strconv"
	"strings"
)

// BlobKey is the key of a function, by the SHA-256 of its content in hex.
func BlobKey(sum string) string { return "blobs/" + sum }

// Checkpoints is what the keys of all checkpoints begin with.
const Checkpoints = "checkpoints/"

// CheckpointsOf is what the keys of a sweep's checkpoints begin with.
func CheckpointsOf(sweep string) string { return Checkpoints + sweep + "/" }

// Format of a checkpoint: the suffix of its key.
type Format string

const (
	// Safetensors is what the SDK writes.
	Safetensors Format = "safetensors"
	// Opaque is what a program wrote, in whatever way.
	Opaque Format = "ckpt"
)

// Checkpoint is what the key of a checkpoint says: whose it is.
type Checkpoint struct {
	Sweep string
	Trial int32
	Step  int64
	// LeaseID is the lease that it was saved under.
	LeaseID uint64
	Format  Format
}

// Key of the checkpoint in the store.
func (c Checkpoint) Key() string {
	return fmt.Sprintf("%s%d/%012d-%d.%s", CheckpointsOf(c.Sweep), c.Trial, c.Step, c.LeaseID, c.Format)
}

// ParseCheckpoint reads a key; false if it is not exactly what Key writes.
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
	return c, (c.Format == Safetensors || c.Format == Opaque) && CheckKey(key) == nil && key == c.Key()
}

// outerSuffix ends the key of an outer optimizer's state.
const outerSuffix = ".outer"

// OuterKey is the key of what an outer optimizer left beside a checkpoint.
func OuterKey(checkpoint string) string { return checkpoint + outerSuffix }

// CheckpointAt reads the key of an object that is a checkpoint, or part of one: what lies under its key or beside it belongs to
// it.
func CheckpointAt(key string) (Checkpoint, bool) {
	parts := strings.SplitN(key, "/", 5)
	return ParseCheckpoint(strings.TrimSuffix(strings.Join(parts[:min(4, len(parts))], "/"), outerSuffix))
}

// Of says whether the checkpoint is one that a trial saved under a lease.
func (c Checkpoint) Of(sweep string, trial int32, leaseID uint64) bool {
	return c.Sweep == sweep && c.Trial == trial && c.LeaseID == leaseID
}
