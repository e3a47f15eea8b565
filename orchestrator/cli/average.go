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

func (a *app) averageCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "average FILE[=WEIGHT]... --to FILE",
		Short: "Average checkpoints into one",
		Long: `Average writes the weighted mean of safetensors files that hold the same tensors, such as checkpoints that trials of
one model saved. A file's weight is 1 unless it is given, for example as the steps that it was trained.

Floats (F64, F32, F16, BF16, F8) are averaged; integers and booleans are those of the file of the largest weight, as
is the metadata. A running_var beside a running_mean (Keras: moving_variance, moving_mean) becomes the variance of
all that the files' layers saw: the mean of their variances and the variance of their means. Files whose tensors
differ in name, type or shape are refused, as are weights of which one is NaN or infinite and another is not. It takes
some megabytes of memory, whatever the files' size.

Averaged weights are good where the files began from one checkpoint and did not move far from each other; of models
that were trained from different beginnings they are useless. Test what you get.`,
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
				return badInput("--to: which file shall hold the average?")
			}
			return a.average(cmd.Context(), args, to)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "write the average to this `FILE`")
	return cmd
}

func (a *app) average(ctx context.Context, args []string, to string) error {
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
	if err := a.writeAverage(ctx, mean, to); err != nil {
		return err
	}
	a.notef("wrote %s: the average of %d checkpoints, %s", to, len(sources), formatBytes(mean.Size()))
	return nil
}

// openSource opens FILE or FILE=WEIGHT. A file whose own name ends as a weight would is found by its whole name.
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
		err = fmt.Errorf("%s is not a file", s.Name) // a pipe that nobody writes to would be waited for
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

// averageError makes what is wrong with the given files bad input.
func averageError(err error) error {
	for _, input := range []error{safetensors.ErrFormat, checkpoint.ErrMismatch, checkpoint.ErrNotFinite, checkpoint.ErrWeight} {
		if errors.Is(err, input) {
			return badInput("%w", err)
		}
	}
	return err
}
