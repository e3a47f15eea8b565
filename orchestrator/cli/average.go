package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

func (rs *resultCommands) averageCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "average FILE[=WEIGHT]... --to FILE",
		Short: "Average checkpoints into one",
		Long: `Average writes the weighted mean of safetensors files with the same tensors, such as checkpoints from trials of one
model. A file's weight is 1 by default; for example, give the number of steps that it was trained.

Floats (F64, F32, F16, BF16, F8) are averaged. Integers, booleans and the metadata are copied from the file with the
largest weight. A running_var with a running_mean (Keras: moving_variance, moving_mean) becomes the variance over all
files: the mean of their variances plus the variance of their means. The command rejects files whose tensors differ in
name, type or shape, and values that are finite in one file but not in another. It needs some megabytes of memory for
files of any size.

An average is good if the files started from one checkpoint and have not diverged far. The average of models with
different initial weights is useless. Test the result.`,
		Annotations: map[string]string{globalFlags: ""},
		Example: `  outbid show digits/3 --checkpoint a.safetensors
  outbid show digits/7 --checkpoint b.safetensors
  outbid average a.safetensors b.safetensors --to mean.safetensors
  outbid average a.safetensors=900 b.safetensors=300 --to mean.safetensors`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return badInput("average needs FILE[=WEIGHT], once or more")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return badInput("--to is missing: name the file for the average")
			}
			return rs.average(cmd.Context(), args, to)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "write the average to this `FILE`")
	return cmd
}

func (rs *resultCommands) average(ctx context.Context, args []string, to string) error {
	var sources []checkpoint.Source
	defer func() { closeSources(sources) }()
	weights := make(map[string]float64)
	for _, arg := range args {
		s, err := openSource(arg)
		if err != nil {
			return err
		}
		sources = append(sources, s)
		weights[filepath.Base(s.Name)] += s.Weight
	}
	note, err := json.Marshal(weights)
	if err != nil {
		return fmt.Errorf("describe the average: %w", err)
	}
	mean, err := checkpoint.New(sources, map[string]string{"outbid.average": string(note)})
	if err != nil {
		return averageError(err)
	}
	if err := writeAverage(ctx, mean, to); err != nil {
		return err
	}
	rs.notef("wrote %s: the average of %d checkpoints, %s", to, len(sources), formatBytes(mean.Size()))
	return nil
}

// openSource opens FILE or FILE=WEIGHT. A file whose name ends like a weight is found by its full name.
func openSource(arg string) (checkpoint.Source, error) {
	s := checkpoint.Source{Name: arg, Weight: 1}
	if _, err := os.Stat(arg); err != nil {
		if i := strings.LastIndexByte(arg, '='); i >= 0 {
			s.Name = arg[:i]
			if s.Weight, err = strconv.ParseFloat(arg[i+1:], 64); err != nil || math.IsNaN(s.Weight) || math.IsInf(s.Weight, 0) {
				return s, badInput("%s: weight %q: want a number of at least 0, such as 900", s.Name, arg[i+1:])
			}
		}
	}
	info, err := os.Stat(s.Name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", s.Name) // opening a pipe without a writer would block
	}
	if err != nil {
		return s, badInput("cannot read the checkpoint: %w", err)
	}
	f, err := os.Open(s.Name)
	if err != nil {
		return s, badInput("cannot read the checkpoint: %w", err)
	}
	if info, err = f.Stat(); err != nil {
		return s, errors.Join(badInput("cannot read the checkpoint: %w", err), f.Close())
	}
	s.File, s.Size = f, info.Size()
	return s, nil
}

// averageError converts an error about the given files to bad input.
func averageError(err error) error {
	for _, input := range []error{safetensors.ErrFormat, checkpoint.ErrMismatch, checkpoint.ErrNotFinite, checkpoint.ErrWeight} {
		if errors.Is(err, input) {
			return badInput("%w", err)
		}
	}
	return err
}
