package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/server"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// exported has the options of `export`.
type exported struct {
	trials, reports, kind string
	// ledger is the file for the whole ledger of the server with the data directory data and the store, which may be
	// empty.
	ledger, data, store string
	// nats locates the ledger if it is not in data.
	nats server.NATSConfig
}

// resultCommands make files of results: tables of trials, averages of checkpoints, and soups.
type resultCommands struct{ *client }

func (rs *resultCommands) exportCommand() *cobra.Command {
	var e exported
	cmd := &cobra.Command{
		Use:   "export [SWEEP]",
		Short: "Write a sweep's trials and reports as CSV or Parquet, or a whole ledger",
		Long: `Export writes two tables: one line for each trial, and one for each report. Parameters are columns named
config.NAME, with dots between groups; metrics are columns named metric.NAME (for a trial, of its newest report).
Absent cells are empty; NaN stays NaN.

Without --trials and --reports it writes both tables, to SWEEP-trials and SWEEP-reports in this directory. A file named
"-" is standard output. --format, or else the extension .csv or .parquet, selects the format.

With --ledger it instead writes the whole ledger of the server in --data, which may be running or not. With --nats it
reads the ledger from that NATS, with the same keys or credentials as 'outbid serve'. The file has a line of JSON for
each batch, which "outbid replay" reads, with the hashes that chain the batches, so that damage is detected.`,
		Annotations: map[string]string{globalFlags: globalServer + " " + globalLog},
		Example: `  outbid export digits-1
  outbid export digits-1 --format parquet
  outbid export digits-1 --trials trials.parquet --reports reports.parquet
  outbid export digits-1 --trials - | head
  outbid export --ledger ledger.jsonl
  outbid export --ledger ledger.jsonl --nats nats://127.0.0.1:4222 --keys .outbid/keys`,
		Args: func(cmd *cobra.Command, args []string) error {
			if e.ledger != "" {
				return exactArgs()(cmd, args)
			}
			return exactArgs("SWEEP")(cmd, args)
		},
		ValidArgsFunction: rs.completeSweeps(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if e.ledger != "" {
				return rs.exportLedger(cmd.Context(), e)
			}
			if e.kind != "" && e.kind != "csv" && e.kind != "parquet" {
				return badInput("--format %q: want csv or parquet", e.kind)
			}
			if err := e.checkNames(); err != nil {
				return err
			}
			if e.trials == "-" && e.reports == "-" {
				return badInput("--trials and --reports cannot both be written to standard output")
			}
			return rs.onSweep(cmd.Context(), args[0], func(c *connection, sweep *outbidv1.Sweep) error {
				return rs.export(cmd.Context(), c, sweep, e)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.trials, "trials", "", "write the trials to this `FILE`")
	f.StringVar(&e.reports, "reports", "", "write the reports to this `FILE`")
	f.StringVar(&e.kind, "format", "", "csv or parquet (default: by the file's name, else csv)")
	f.StringVar(&e.ledger, "ledger", "", "write the whole ledger to this `FILE`, - for standard output")
	f.StringVar(&e.data, "data", defaultData, "with --ledger: the server's data `DIR`")
	f.StringVar(&e.nats.URL, "nats", "", "with --ledger: `URL` of the NATS with the ledger, if it is not in the server's process")
	f.StringVar(&e.nats.Keys, "keys", "", "with --nats: `DIR` of the cluster's keys (default: DATA/keys)")
	f.StringVar(&e.store, "store", "", "with --ledger: `STORE` of the server, with the oldest part of the ledger (default: where the server put it)")
	natsFlags(cmd, &e.nats)
	complete(cmd, "format", "csv", "parquet")
	return cmd
}

// exportLedger writes a server's whole ledger.
func (rs *resultCommands) exportLedger(ctx context.Context, e exported) error {
	if e.trials != "" || e.reports != "" || e.kind != "" {
		return badInput("--ledger cannot be combined with --trials, --reports and --format, which are for one sweep")
	}
	open := func() (ledger.Ledger, func() error, error) { return rs.openLedger(ctx, e.data) }
	if e.nats.URL != "" || e.store != "" {
		open = func() (ledger.Ledger, func() error, error) {
			return rs.openLedgerOf(ctx, server.LedgerConfig{Data: e.data, Store: e.store, NATS: e.nats})
		}
	}
	l, done, err := open()
	if err != nil {
		return err
	}
	var batches uint64
	write := func(w io.Writer) (err error) {
		buffered := bufio.NewWriterSize(w, 1<<20)
		batches, err = ledger.Export(ctx, l, buffered)
		return errors.Join(err, buffered.Flush())
	}
	if e.ledger == "-" {
		return errors.Join(write(rs.stdout), done())
	}
	if err := errors.Join(writeWhole(e.ledger, write), done()); err != nil {
		return err
	}
	rs.notef("wrote %s: %s batches", e.ledger, formatCount(int64(batches)))
	return nil
}

// checkNames rejects a file name with an unknown extension.
func (e exported) checkNames() error {
	for _, part := range []struct{ flag, file string }{{"trials", e.trials}, {"reports", e.reports}} {
		switch ext := strings.ToLower(filepath.Ext(part.file)); {
		case part.file == "" || part.file == "-" || e.kind != "" || ext == ".csv" || ext == ".parquet":
		default:
			return badInput("--%s %s: want a name that ends in .csv or .parquet, or --format csv or parquet",
				part.flag, part.file)
		}
	}
	return nil
}

func (rs *resultCommands) export(ctx context.Context, c *connection, sweep *outbidv1.Sweep, e exported) error {
	if e.trials == "" && e.reports == "" {
		end := ".csv"
		if e.kind == "parquet" {
			end = ".parquet"
		}
		e.trials, e.reports = sweep.GetId()+"-trials"+end, sweep.GetId()+"-reports"+end
	}
	for _, part := range []struct {
		file, what string
		write      func(ctx context.Context, c *connection, sweep *outbidv1.Sweep, w io.Writer, kind string) (int, error)
	}{
		{e.trials, "trials", rs.exportTrials}, {e.reports, "reports", rs.exportReports},
	} {
		if part.file == "" {
			continue
		}
		kind := e.kind
		if kind == "" {
			kind = "csv"
			if strings.EqualFold(filepath.Ext(part.file), ".parquet") {
				kind = "parquet"
			}
		}
		if part.file == "-" {
			if _, err := part.write(ctx, c, sweep, rs.stdout, kind); err != nil {
				return err
			}
			continue
		}
		var rows int
		err := writeWhole(part.file, func(w io.Writer) (err error) {
			rows, err = part.write(ctx, c, sweep, w, kind)
			return err
		})
		if err != nil {
			return err
		}
		rs.notef("wrote %s: %s %s", part.file, formatCount(int64(rows)), part.what)
	}
	return nil
}

// exportTrials reads the trials twice: once for the metrics' names, which become columns, and once for the rows. So it
// keeps only names in memory.
func (rs *resultCommands) exportTrials(ctx context.Context, c *connection, sweep *outbidv1.Sweep, w io.Writer, kind string,
) (int, error) {
	names := map[string]bool{}
	for t, err := range c.trials(ctx, sweep.GetId(), "number", 0) {
		if err != nil {
			return 0, err
		}
		for name := range t.GetLast().GetMetrics() {
			names[name] = true
		}
	}
	metrics := sortedKeys(names)
	config := configColumns(sweep.GetSpec().GetSpace())
	s, err := newTableWriter(w, kind, "trials", trialColumns(config, metrics))
	if err != nil {
		return 0, err
	}
	rows := 0
	for t, err := range c.trials(ctx, sweep.GetId(), "number", 0) {
		if err != nil {
			return rows, err
		}
		row, err := trialRow(t, config, metrics)
		if err != nil {
			return rows, err
		}
		if err := s.write(row); err != nil {
			return rows, err
		}
		rows++
	}
	return rows, s.close()
}

func trialColumns(config []configColumn, metrics []string) []column {
	columns := []column{
		{"sweep", kindText},
		{"trial", kindInt},
		{"state", kindText},
		{"reason", kindText},
		{"bracket", kindInt},
		{"step", kindInt},
		{"until_step", kindInt},
		{"best", kindFloat},
		{"best_step", kindInt},
		{"device_seconds", kindFloat},
		{"steps_per_second", kindFloat},
		{"resumes", kindInt},
		{"restarts", kindInt},
		{"node", kindText},
		{"created", kindTime},
		{"ended", kindTime},
	}
	for _, c := range config {
		columns = append(columns, c.column)
	}
	return appendMetrics(columns, metrics)
}

func appendMetrics(columns []column, metrics []string) []column {
	for _, name := range metrics {
		columns = append(columns, column{"metric." + name, kindFloat})
	}
	return columns
}

func trialRow(t *outbidv1.Trial, config []configColumn, metrics []string) ([]cell, error) {
	var best, bestStep cell
	if t.Best != nil {
		best, bestStep = t.GetBest(), t.GetBestStep()
	}
	row := []cell{
		t.GetSweep(), int64(t.GetNumber()), trialState(t.GetState()), t.GetReason(), int64(t.GetBracket()),
		t.GetStep(), t.GetUntilStep(), best, bestStep,
		t.GetDeviceSeconds(), t.GetStepsPerSecond(), int64(t.GetResumes()), int64(t.GetRestarts()),
		t.GetNode(), timeCell(t.GetCreated()), timeCell(t.GetEnded()),
	}
	cells, err := configCells(configOf(t), config)
	if err != nil {
		return nil, err
	}
	return appendValues(append(row, cells...), t.GetLast().GetMetrics(), metrics), nil
}

func appendValues(row []cell, values map[string]float64, metrics []string) []cell {
	for _, name := range metrics {
		if v, ok := values[name]; ok {
			row = append(row, v)
		} else {
			row = append(row, nil)
		}
	}
	return row
}

func timeCell(ts *timestamppb.Timestamp) cell {
	if ts == nil {
		return nil
	}
	return ts.AsTime().Truncate(time.Microsecond)
}

// exportReports reads the reports twice, like exportTrials. Reports are only appended, so the second pass stops where
// the first ended: the file contains the reports at the start of the export.
func (rs *resultCommands) exportReports(ctx context.Context, c *connection, sweep *outbidv1.Sweep, w io.Writer, kind string,
) (int, error) {
	names, count := map[string]bool{}, 0
	err := c.reports(ctx, sweep.GetId(), func(r *outbidv1.TrialReport) bool {
		count++
		for name := range r.GetReport().GetMetrics() {
			names[name] = true
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	metrics := sortedKeys(names)
	s, err := newTableWriter(w, kind, "reports", appendMetrics([]column{
		{"sweep", kindText},
		{"trial", kindInt},
		{"step", kindInt},
		{"time", kindTime},
		{"train_seconds", kindFloat},
		{"lease", kindInt},
		{"superseded", kindBool},
	}, metrics))
	if err != nil || count == 0 {
		return 0, errors.Join(err, closeSheet(s))
	}
	rows := 0
	var writeErr error
	err = c.reports(ctx, sweep.GetId(), func(r *outbidv1.TrialReport) bool {
		writeErr = s.write(appendValues([]cell{
			sweep.GetId(), int64(r.GetTrial()), r.GetReport().GetStep(), timeCell(r.GetReport().GetTime()),
			r.GetReport().GetTrainSeconds(), int64(r.GetReport().GetLeaseId()), r.GetSuperseded(),
		}, r.GetReport().GetMetrics(), metrics))
		rows++
		return writeErr == nil && rows < count
	})
	return rows, errors.Join(err, writeErr, s.close())
}

func closeSheet(s tableWriter) error {
	if s == nil {
		return nil
	}
	return s.close()
}

// reports calls f for every report, oldest first, until f returns false.
func (c *connection) reports(ctx context.Context, sweep string, f func(*outbidv1.TrialReport) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.ListReports(ctx, &outbidv1.ListReportsRequest{Sweep: sweep})
	if err != nil {
		return err
	}
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, r := range piece.GetReports() {
			if !f(r) {
				return nil
			}
		}
	}
}
