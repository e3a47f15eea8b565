package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// soupOptions has the flags of `outbid soup`.
type soupOptions struct {
	out      format
	trials   int
	evaluate string
	uniform  bool
	to       string
	local    bool
	get      int32
}

// makes reports whether to make a soup; otherwise one is fetched.
func (o *soupOptions) makes() bool { return o.uniform || o.evaluate != "" }

func (o *soupOptions) check() error {
	switch {
	case o.uniform && o.evaluate != "":
		return badInput("give either --eval COMMAND, which evaluates a mean, or --uniform, which averages all")
	case !o.makes() && o.to == "":
		return badInput("give --eval COMMAND or --uniform to make a soup, or --to FILE to fetch the sweep's soup")
	case o.makes() && o.get != 0:
		return badInput("--get fetches an existing soup, so it cannot be combined with --eval and --uniform, which make one")
	case o.local && o.to == "":
		return badInput("--local does not store the soup: give --to FILE")
	case o.trials < 1:
		return badInput("-n %d: want a number from 1", o.trials)
	case o.get < 0:
		return badInput("--get %d: want a soup's number, from 1", o.get)
	}
	return nil
}

func (rs *resultCommands) soupCommand() *cobra.Command {
	var o soupOptions
	cmd := &cobra.Command{
		Use:   "soup SWEEP",
		Short: "Average those of a sweep's best checkpoints that improve the result",
		Long: `Soup makes a greedy soup of a sweep's best trials (Wortsman et al., ICML 2022). It starts with the checkpoint of the
best trial, and adds each next one if the mean is then not worse on your data. The soup is stored with the sweep's
checkpoints, 'outbid show' lists it, and --to FILE without --eval or --uniform fetches it.

--eval is a shell command that evaluates a mean. It reads the safetensors file $OUTBID_CHECKPOINT, and prints the
sweep's metric on its last line: a number, or a JSON object with the metric. Use data that the trials did not report
on; otherwise the same data selects and judges the soup.

The sweep keeps the checkpoints of as many best trials as its spec says (checkpoints: best). Trials without one, or
with other tensor names or shapes, are skipped. --uniform averages all without evaluation, which helps only if all
trials started from the same weights. The sweep keeps as many soups as checkpoints, but at least the newest one, and
all with "checkpoints: all". They are deleted with the sweep.`,
		Example: `  outbid soup digits --eval 'python evaluate.py "$OUTBID_CHECKPOINT"'
  outbid soup digits --to soup.safetensors
  outbid soup digits -n 5 --uniform --local --to mean.safetensors`,
		Args:              exactArgs("SWEEP"),
		ValidArgsFunction: rs.completeSweeps(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			r, err := sweepOnly(args[0])
			if err != nil {
				return err
			}
			return rs.soup(cmd.Context(), r, o)
		},
	}
	outputFlag(cmd, &o.out)
	cmd.Flags().IntVarP(&o.trials, "number", "n", 10, "how many of the best trials to try")
	cmd.Flags().StringVar(&o.evaluate, "eval", "", "shell `COMMAND` that prints the metric of the checkpoint in $OUTBID_CHECKPOINT")
	cmd.Flags().BoolVar(&o.uniform, "uniform", false, "average all trials without an evaluation")
	cmd.Flags().StringVar(&o.to, "to", "", "write the soup to this `FILE`")
	cmd.Flags().BoolVar(&o.local, "local", false, "write the soup only to the file: do not store it with the sweep")
	cmd.Flags().Int32Var(&o.get, "get", 0, "fetch the soup with this `NUMBER` (default: the newest)")
	return cmd
}

// ingredient is a trial that may be part of a soup.
type ingredient struct {
	Trial  int32    `json:"trial"`
	Metric float64  `json:"metric"`
	Soup   *float64 `json:"soup"`
	Kept   bool     `json:"kept"`
	Note   string   `json:"note,omitempty"`
}

func (rs *resultCommands) soup(ctx context.Context, r ref, o soupOptions) error {
	c, err := rs.connect()
	if err != nil {
		return err
	}
	defer c.close()
	sweep, err := c.find(ctx, r.sweep)
	if err != nil {
		return err
	}
	if !o.makes() {
		return rs.fetchSoup(ctx, c, sweep, o)
	}
	place := os.TempDir()
	if o.to != "" {
		place = filepath.Dir(o.to)
	}
	dir, remove, err := workFolder(place)
	if err != nil {
		return badInput("cannot write in %s: %w", place, err)
	}
	defer remove()
	made, err := rs.makeSoup(ctx, c, sweep, o, dir)
	if err != nil {
		return err
	}
	if o.to != "" {
		rs.notef("wrote %s: %s", o.to, made.line())
	}
	if !o.local {
		kept, err := c.publishSoup(ctx, sweep.GetId(), made)
		if err != nil {
			return err
		}
		rs.notef("%s stores it as soup %d: %s", sweep.GetId(), kept.GetNumber(), made.line())
	}
	if o.uniform {
		return nil
	}
	return rs.listIngredients(o.out, made.trials)
}

// madeSoup is a soup in a file, and its ingredients.
type madeSoup struct {
	file        string
	size        int64
	kept, tried int
	metric      *float64
	trials      []*ingredient
}

func (m *madeSoup) line() string {
	return fmt.Sprintf("the average of %d of %d checkpoints, %s", m.kept, m.tried, formatBytes(m.size))
}

// makeSoup writes the soup to the requested file, or to one in dir.
func (rs *resultCommands) makeSoup(ctx context.Context, c *connection, sweep *outbidv1.Sweep, o soupOptions, dir string) (*madeSoup, error) {
	trials, sources, err := c.ingredients(ctx, sweep, o.trials, dir)
	defer closeSources(sources)
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, &exitError{code: exitFailed, msg: fmt.Sprintf("no trial of %s that reported %q has a checkpoint", sweep.GetId(), sweep.GetSpec().GetMetric())}
	}
	made := &madeSoup{file: o.to, tried: len(sources), trials: trials}
	kept := sources
	if o.uniform {
		for _, t := range trials {
			t.Kept = true
		}
	} else {
		e := evaluation{console: rs.console, command: o.evaluate, metric: sweep.GetSpec().GetMetric(), path: filepath.Join(dir, "mean.safetensors")}
		if kept, made.metric, err = e.greedy(ctx, sweep, trials, sources); err != nil {
			return nil, err
		}
	}
	mean, err := checkpoint.New(kept, map[string]string{"outbid.soup": sweep.GetId()})
	if err != nil {
		return nil, averageError(err)
	}
	if made.file == "" {
		made.file = filepath.Join(dir, "soup.safetensors")
	}
	made.kept, made.size = len(kept), mean.Size()
	return made, writeAverage(ctx, mean, made.file)
}

func (rs *resultCommands) listIngredients(out format, trials []*ingredient) error {
	l := newLister(rs.stdout, out, []string{"TRIAL", "METRIC", "SOUP WITH IT", "KEPT"}, func(i *ingredient) []string {
		soup, kept := "-", "no"
		if i.Soup != nil {
			soup = formatMetric(*i.Soup)
		}
		if i.Kept {
			kept = "yes"
		}
		if i.Note != "" {
			kept += ": " + i.Note
		}
		return []string{fmt.Sprint(i.Trial), formatMetric(i.Metric), soup, kept}
	})
	for _, i := range trials {
		if err := l.add(i); err != nil {
			return err
		}
	}
	return l.close("")
}

// ingredients fetches the checkpoints of the best trials that have one, best first.
func (c *connection) ingredients(ctx context.Context, sweep *outbidv1.Sweep, n int, dir string) ([]*ingredient, []checkpoint.Source, error) {
	var list []*ingredient
	var sources []checkpoint.Source
	for t, err := range c.trials(ctx, sweep.GetId(), "best", 0) {
		if err != nil {
			return nil, sources, err
		}
		if t.Best == nil || len(sources) == n {
			break // trials without a metric come last
		}
		file := filepath.Join(dir, fmt.Sprintf("%s/%d", sweep.GetId(), t.GetNumber()))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, sources, fmt.Errorf("make room for checkpoints: %w", err)
		}
		want := &outbidv1.GetCheckpointRequest{Sweep: sweep.GetId(), Trial: t.GetNumber(), Best: true}
		about, err := c.download(ctx, want, file)
		switch {
		case status.Code(err) == codes.NotFound:
			continue
		case err != nil:
			return nil, sources, err
		case about.GetShards() > 0:
			return nil, sources, badInput("the checkpoint of %s/%d has %d shards, which cannot be averaged; save whole weights "+
				"in rank 0", sweep.GetId(), t.GetNumber(), about.GetShards())
		}
		s, err := openSource(file)
		if err != nil {
			return nil, sources, err
		}
		s.Name = fmt.Sprintf("%s/%d", sweep.GetId(), t.GetNumber())
		list, sources = append(list, &ingredient{Trial: t.GetNumber(), Metric: t.GetBest()}), append(sources, s)
	}
	return list, sources, nil
}

// evaluation evaluates a mean with the user's command.
type evaluation struct {
	console               *console
	command, metric, path string
}

// greedy returns the sources of the greedy soup, and records for each trial whether it was used.
func (e *evaluation) greedy(ctx context.Context, sweep *outbidv1.Sweep, trials []*ingredient, sources []checkpoint.Source) ([]checkpoint.Source, *float64, error) {
	better := func(a, b float64) bool { return a < b }
	if sweep.GetSpec().GetMode() == "max" {
		better = func(a, b float64) bool { return a > b }
	}
	soup, err := checkpoint.Greedy(sources, better, func(mean *checkpoint.Average) (float64, error) {
		if err := writeAverage(ctx, mean, e.path); err != nil {
			return 0, err
		}
		return e.evaluate(ctx)
	})
	if err != nil {
		return nil, nil, averageError(err)
	}
	for i, t := range trials {
		if !math.IsNaN(soup.Tried[i]) {
			t.Soup = &soup.Tried[i]
		}
		if soup.Errors[i] != nil {
			t.Note = soup.Errors[i].Error()
		}
	}
	var kept []checkpoint.Source
	for _, i := range soup.Kept {
		trials[i].Kept = true
		kept = append(kept, sources[i])
	}
	return kept, &soup.Metric, nil
}

// evaluate runs the command, and reads the metric from the last line of its output.
func (e *evaluation) evaluate(ctx context.Context) (float64, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", e.command)
	cmd.Env = append(os.Environ(), "OUTBID_CHECKPOINT="+e.path)
	cmd.Stderr = e.console.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return 0, fmt.Errorf("evaluate: %w", ctx.Err())
	}
	if err != nil {
		return 0, &exitError{code: exitFailed, msg: fmt.Sprintf("--eval: %v: %s", err, e.command)}
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if v, err := strconv.ParseFloat(last, 64); err == nil {
		return v, nil
	}
	var object map[string]any
	if json.Unmarshal([]byte(last), &object) == nil {
		if v, ok := object[e.metric].(float64); ok {
			return v, nil
		}
	}
	return 0, badInput("--eval: its last line is %.60q: want a number, or a JSON object that has %q", last, e.metric)
}

// writeAverage writes an average to a file atomically.
func writeAverage(ctx context.Context, mean *checkpoint.Average, file string) error {
	cores := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores + 1)) // see Average.Write
	return writeWholeFile(file, func(f *os.File) error {
		if err := mean.Write(ctx, f, cores); err != nil {
			return averageError(err)
		}
		return f.Sync()
	})
}

func closeSources(sources []checkpoint.Source) {
	for _, s := range sources {
		if f, ok := s.File.(io.Closer); ok {
			_ = f.Close() // it was only read
		}
	}
}
