package cli

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	"github.com/outbid-dev/outbid/orchestrator/sim/study"
)

func (a *app) studyCommand() *cobra.Command {
	var results, folder string
	var tables bool
	cmd := &cobra.Command{
		Use:   "study FILE",
		Short: "Run a predefined comparison of policies over seeds, and print its tables",
		Long: `Study reads tables of policies, workloads and seeds from a YAML file, runs everything that its results file does not
have yet, a line for each run, and prints the tables as Markdown: means over the seeds with 95 % intervals. An
interrupted study continues where it stopped.`,
		Example: `  outbid study docs/research/themis/themis.yaml --results themis.jsonl
  outbid study docs/research/themis/themis.yaml --results docs/research/themis/themis.jsonl.gz --tables`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.study(cmd.Context(), args[0], results, folder, tables)
		},
	}
	cmd.Flags().StringVar(&results, "results", "results.jsonl", "`FILE` of finished runs, to which new ones are added; with --tables it may be compressed (.gz)")
	cmd.Flags().StringVar(&folder, "data", ".", "`DIR` with the traces and throughputs of the tables")
	cmd.Flags().BoolVar(&tables, "tables", false, "only print the tables of finished runs")
	_ = cmd.MarkFlagFilename("results")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

// study runs the missing runs and prints the tables.
func (a *app) study(ctx context.Context, file, results, folder string, tablesOnly bool) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return badInput("%w", err)
	}
	s, err := study.Read(data)
	if err != nil {
		return badInput("%s: %w", file, err)
	}
	got, err := readResults(results)
	if err != nil {
		return err
	}
	if missing, all := s.Missing(got); missing > 0 && !tablesOnly {
		if strings.HasSuffix(results, ".gz") {
			return badInput("--results %s: cannot add runs to a compressed file; decompress it, or pass --tables", results)
		}
		a.notef("%d of %d runs are missing", missing, all)
		if err := a.runStudy(ctx, s, got, results, folder, missing); err != nil {
			return err
		}
	}
	a.printf("%s", s.Markdown(got, themis.Lies))
	return nil
}

func readResults(path string) (study.Results, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return study.Results{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !strings.HasSuffix(path, ".gz") {
		return study.ReadResults(f)
	}
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, badInput("%s: %w", path, err)
	}
	return study.ReadResults(unzipped)
}

func (a *app) runStudy(ctx context.Context, s *study.Study, got study.Results, results, folder string, missing int) (err error) {
	f, err := os.OpenFile(results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	done := 0
	return s.Run(ctx, a.simulate, folder, got, func(l *study.Line) error {
		line, err := encodeJSON(l, false)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(f, "%s\n", line); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
		done++
		a.notef("%d of %d: %s, seed %d: %s", done, missing, l.Table, l.Seed, l.Row)
		return nil
	})
}
