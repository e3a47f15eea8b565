package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (q *queryCommands) bestCommand() *cobra.Command {
	var out format
	var n int
	var checkpoint string
	cmd := &cobra.Command{
		Use:   "best SWEEP",
		Short: "Show the best trials and fetch the best checkpoint",
		Long: `Best lists the trials with the best values of the sweep's metric, best first, and writes a checkpoint of
the best one to a file if --checkpoint is given: that of its best report, or else the best one that is kept.`,
		Example: `  outbid best digits-1
  outbid best digits -n 5
  outbid best digits-1 --checkpoint best.safetensors
  outbid best digits-1 -o json | jq '.[0].config'`,
		Args:              exactArgs("SWEEP"),
		ValidArgsFunction: q.completeSweeps(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 {
				return badInput("-n %d: want a number from 1", n)
			}
			return q.onSweep(cmd.Context(), args[0], func(c *connection, sweep *outbidv1.Sweep) error {
				return q.best(cmd.Context(), c, sweep, n, out, checkpoint)
			})
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().IntVarP(&n, "number", "n", 1, "how many trials")
	cmd.Flags().StringVar(&checkpoint, "checkpoint", "", "write the best trial's best checkpoint to this `FILE`")
	return cmd
}

func (q *queryCommands) best(ctx context.Context, c *connection, sweep *outbidv1.Sweep, n int, out format, file string) error {
	var trials []*outbidv1.Trial
	for t, err := range c.trials(ctx, sweep.GetId(), "best", n) {
		if err != nil {
			return err
		}
		if t.Best == nil {
			break // trials without a metric come last
		}
		trials = append(trials, t)
	}
	if len(trials) == 0 {
		return &exitError{code: exitFailed, msg: fmt.Sprintf("%s; its trials' output: outbid logs %s", noMetric(sweep), sweep.GetId())}
	}
	if file != "" {
		want := &outbidv1.GetCheckpointRequest{Sweep: sweep.GetId(), Trial: trials[0].GetNumber(), Best: true}
		got, err := q.fetchCheckpoint(ctx, c, want, file)
		if err != nil {
			return err
		}
		if best := trials[0]; got.GetStep() != best.GetBestStep() {
			q.notef("its best report, %s, is from step %s, which does not have a checkpoint", formatMetric(best.GetBest()),
				formatCount(best.GetBestStep()))
		}
	}
	if out == formatTable && n == 1 {
		q.showTrial(sweep, trials[0])
		return nil
	}
	l := trialLister(q.console, out, sweep)
	for _, t := range trials {
		if err := l.add(viewTrial(t)); err != nil {
			return err
		}
	}
	return l.close("")
}

// fetchCheckpoint downloads a checkpoint and prints a line about it.
func (q *queryCommands) fetchCheckpoint(ctx context.Context, c *connection, want *outbidv1.GetCheckpointRequest, file string,
) (*outbidv1.Checkpoint, error) {
	about, err := c.download(ctx, want, file)
	if err != nil {
		return nil, err
	}
	if err := c.downloadShards(ctx, want, about, file); err != nil {
		return nil, err
	}
	q.notef("wrote %s: checkpoint of %s/%d at step %s, %s", written(file, about.GetShards()), want.GetSweep(), want.GetTrial(),
		formatCount(about.GetStep()), formatBytes(about.GetBytes()+about.GetShardBytes()))
	return about, nil
}

// downloadShards writes the shards of a checkpoint to files next to its manifest, with the rank as the suffix.
func (c *connection) downloadShards(ctx context.Context, want *outbidv1.GetCheckpointRequest, about *outbidv1.Checkpoint, file string) error {
	for rank := range about.GetShards() {
		shard := &outbidv1.GetCheckpointRequest{Sweep: want.GetSweep(), Trial: want.GetTrial(), Step: &about.Step, Shard: &rank}
		if _, err := c.download(ctx, shard, fmt.Sprintf("%s.%d", file, rank)); err != nil {
			return err
		}
	}
	return nil
}

// written returns the names of a checkpoint's files.
func written(file string, shards int32) string {
	if shards == 0 {
		return file
	}
	return fmt.Sprintf("%s and its shards %s.0 to .%d", file, file, shards-1)
}

// download writes a checkpoint to a file, atomically and only if its hash matches the ledger.
func (c *connection) download(ctx context.Context, want *outbidv1.GetCheckpointRequest, file string) (*outbidv1.Checkpoint, error) {
	stream, err := c.GetCheckpoint(ctx, want)
	if err != nil {
		return nil, err
	}
	var about *outbidv1.Checkpoint
	err = receive(file, func() ([]byte, error) {
		piece, err := stream.Recv()
		if piece.GetCheckpoint() != nil {
			about = piece.GetCheckpoint()
		}
		return piece.GetData(), err
	}, func(got string) error {
		if sum := about.GetSha256(); sum != "" && sum != got {
			return fmt.Errorf("checkpoint %s arrived damaged: its SHA-256 is %s, not %s; try again", about.GetKey(), got, sum)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return about, nil
}

// receive writes the pieces that next returns until io.EOF to a file. It writes the file atomically, and only if check
// accepts the SHA-256.
func receive(file string, next func() ([]byte, error), check func(sha256 string) error) error {
	hash := sha256.New()
	return writeWhole(file, func(w io.Writer) error {
		for {
			data, err := next()
			if errors.Is(err, io.EOF) {
				return check(hex.EncodeToString(hash.Sum(nil)))
			}
			if err != nil {
				return err
			}
			_, _ = hash.Write(data)
			if _, err := w.Write(data); err != nil {
				return err
			}
		}
	})
}

// writeWhole writes a file atomically.
func writeWhole(file string, write func(io.Writer) error) error {
	return writeWholeFile(file, func(f *os.File) error { return write(f) })
}

// writeWholeFile is writeWhole for writers that need random access. It follows a link and replaces the link's target.
// It does not replace anything but a regular file: run by root, the rename would replace /dev/null.
func writeWholeFile(file string, write func(*os.File) error) error {
	to := file
	if there, err := filepath.EvalSymlinks(file); err == nil {
		to = there
	}
	if info, err := os.Stat(to); err == nil && !info.Mode().IsRegular() {
		return badInput("cannot write %s: it exists and is not a regular file", file)
	}
	err := atomicfile.Write(to, 0o644, write)
	if failed, ok := errors.AsType[*fs.PathError](err); ok && failed.Op == "open" {
		return badInput("cannot write %s: %w", file, err)
	}
	return err
}
