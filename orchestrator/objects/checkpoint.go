package objects

import (
	"fmt"
	"strconv"
	"strings"
)

// BlobKey is the key of a function, by the SHA-256 of its content in hex.
func BlobKey(sum string) string { return "blobs/" + sum }

// CheckpointKey is the key of the checkpoint that a trial saved at a step, under one lease, with the suffix of its format.
func CheckpointKey(sweep string, trial int32, step int64, leaseID uint64, suffix string) string {
	return fmt.Sprintf("checkpoints/%s/%d/%012d-%d.%s", sweep, trial, step, leaseID, suffix)
}

// IsCheckpointOf says whether key is one that the trial may save a checkpoint under while it holds that lease.
func IsCheckpointOf(key, sweep string, trial int32, leaseID uint64) bool {
	rest, ok := strings.CutPrefix(key, fmt.Sprintf("checkpoints/%s/%d/", sweep, trial))
	if !ok {
		return false
	}
	stem, suffix, ok := strings.Cut(rest, ".")
	digits, _, _ := strings.Cut(stem, "-")
	step, err := strconv.ParseInt(digits, 10, 64)
	return ok && err == nil && step >= 0 && (suffix == "ckpt" || suffix == "safetensors") &&
		key == CheckpointKey(sweep, trial, step, leaseID, suffix)
}
