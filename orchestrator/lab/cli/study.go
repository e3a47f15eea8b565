package labcli

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/lab/policy/ablation"
	"github.com/outbid-dev/outbid/orchestrator/lab/study"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

func studyCommand(simulate experiment.Engine) *cobra.Command {
	s := studyRun{simulate: simulate}
	cmd := &cobra.Command{
		Use:   "study FILE",
		Short: "Run a predefined comparison of policies over seeds, and print its tables",
		Long: `Study reads tables of policies, workloads and seeds from a YAML file, runs everything that its results file does not
have yet, a line for each run, and prints the tables as Markdown: means over the seeds with 95 % intervals. An
interrupted study continues where it stopped.`,
		Example: `  outbid-lab study docs/research/themis/themis.yaml --results themis.jsonl
  outbid-lab study docs/research/themis/themis.yaml --results docs/research/themis/themis.jsonl.gz --tables`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.out, s.notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return s.run(cmd.Context(), args[0])
		},
	}
	cmd.Flags().StringVar(&s.results, "results", "results.jsonl", "`FILE` of finished runs, to which new ones are added; with --tables it may be compressed (.gz)")
	cmd.Flags().StringVar(&s.folder, "data", ".", "`DIR` with the traces and throughputs of the tables")
	cmd.Flags().BoolVar(&s.tables, "tables", false, "only print the tables of finished runs")
	_ = cmd.MarkFlagFilename("results")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

// studyRun is a run of `study`.
type studyRun struct {
	simulate experiment.Engine
	// results is the file of finished runs, and folder that of the tables' files.
	results, folder string
	// tables only prints the tables.
	tables     bool
	out, notes io.Writer
}

// run makes the missing runs and prints the tables.
func (r *studyRun) run(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return experiment.BadInput("%w", err)
	}
	s, err := study.Read(data)
	if err != nil {
		return experiment.BadInput("%s: %w", file, err)
	}
	got, err := readResults(r.results)
	if err != nil {
		return err
	}
	if missing, all := s.Missing(got); missing > 0 && !r.tables {
		if strings.HasSuffix(r.results, ".gz") {
			return experiment.BadInput("--results %s: cannot add runs to a compressed file; decompress it, or pass --tables", r.results)
		}
		r.notef("%d of %d runs are missing", missing, all)
		if err := r.runMissing(ctx, s, got, missing); err != nil {
			return err
		}
	}
	_, err = io.WriteString(r.out, s.Markdown(got, ablation.Lies))
	return err
}

// notef prints a line that is not part of the result.
func (r *studyRun) notef(format string, args ...any) {
	_, _ = fmt.Fprintf(r.notes, format+"\n", args...)
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
		return nil, experiment.BadInput("%s: %w", path, err)
	}
	return study.ReadResults(unzipped)
}

// runMissing makes the missing runs and adds them to the file of results.
func (r *studyRun) runMissing(ctx context.Context, s *study.Study, got study.Results, missing int) (err error) {
	f, err := os.OpenFile(r.results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	done := 0
	lines := json.NewEncoder(f)
	lines.SetEscapeHTML(false)
	return s.Run(ctx, r.simulate, r.folder, got, func(l *study.Line) error {
		if err := lines.Encode(l); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
		done++
		r.notef("%d of %d: %s, seed %d: %s", done, missing, l.Table, l.Seed, l.Row)
		return nil
	})
}
