package labcli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/lab/load"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

func loadCommand() *cobra.Command {
	var r loadRun
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Connect many simulated workers to a server, and measure how long it takes to decide on their reports",
		Long: `Load runs many workers of the real protocol in one process, each with its own connection, key and signatures. A stub
takes the place of training: it runs the trials of every sweep of the server, and reports at the rate that
--reports-per-second gives for all of them together. It prints a line every --every, and a summary at the end.

The server may run anywhere, but must be for measurements only, because its sweeps are not trained. The workers register
with the cluster's keys, and keep their credentials in their folder for the next run. A worker needs a descriptor here
and four in a server with NATS in its process (ulimit -n).`,
		Example: `  outbid serve --data load &
  outbid-lab load --keys load/keys --nats nats://127.0.0.1:4222 --workers 1000 --devices 8000 --for 2m
  outbid-lab load --keys load/keys --workers 1000 --devices 8000 --reports-per-second 500 --server-pid $!`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.out, r.notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if f := cmd.Flag("ca"); f != nil {
				r.ca = f.Value.String()
			}
			return r.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.cfg.NATS, "nats", bus.DefaultURL, "`URL` of the server's NATS, or several separated by commas")
	f.StringVar(&r.cfg.Keys, "keys", "", "`DIR` of the cluster's keys (DATA/keys on the server's machine)")
	f.IntVar(&r.cfg.Workers, "workers", 100, "how many workers to simulate")
	f.IntVar(&r.cfg.Devices, "devices", 800, "how many devices they have together")
	f.StringVar(&r.cfg.Type, "type", "gpu", "`TYPE` of the devices")
	f.StringVar(&r.cfg.Name, "name", "load", "start of the nodes' names")
	f.Float64Var(&r.cfg.Reports, "reports-per-second", 0, "how many reports all trials together send a second")
	f.Int64Var(&r.cfg.Steps, "steps", 0, "end a trial after so many steps if its tuner does not (0: never)")
	f.BoolVar(&r.cfg.Verify, "verify", false, "verify the signatures of orders, as workers do; otherwise that processor time is left to the server")
	f.DurationVar(&r.length, "for", 0, "how long to run (0: until interrupted)")
	f.DurationVar(&r.cfg.Every, "every", 10*time.Second, "how often to print a line")
	f.DurationVar(&r.warmUp, "warm-up", 0, "leave out this much of the start in the summary, in addition to the time until all workers have orders")
	f.IntVar(&r.pid, "server-pid", 0, "`PID` of the server on this machine, whose processor time and memory are printed too")
	_ = cmd.MarkFlagDirname("keys")
	return cmd
}

// loadRun is a run of `load`.
type loadRun struct {
	cfg            load.Config
	ca             string
	length, warmUp time.Duration
	pid            int
	out, notes     io.Writer

	began, steady time.Time
	// server and own are the use of the processes at the last sample, and first that of the server when the summary began.
	server, own, first load.Process
	// all are the samples of the summary, added up.
	all load.Sample
}

// run runs the workers and prints what happens.
func (r *loadRun) run(ctx context.Context) error {
	switch {
	case r.cfg.Every <= 0:
		return experiment.BadInput("--every: must be more than 0, got %s", r.cfg.Every)
	case r.length < 0:
		return experiment.BadInput("--for: must be at least 0, got %s", r.length)
	case r.warmUp < 0:
		return experiment.BadInput("--warm-up: must be at least 0, got %s", r.warmUp)
	}
	if err := r.cfg.Check(); err != nil {
		return experiment.BadInput("--%w", err)
	}
	if err := r.trust(); err != nil {
		return err
	}
	if r.pid != 0 {
		if _, err := load.ReadProcess(r.pid); err != nil {
			return experiment.BadInput("--server-pid: %w", err)
		}
	}
	if r.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.length)
		defer cancel()
	}
	r.began, r.server, r.own = time.Now(), r.use(r.pid), r.use(os.Getpid())
	r.cfg.Report = r.print
	r.cfg.Logger = slog.New(slog.NewTextHandler(r.notes, &slog.HandlerOptions{Level: slog.LevelError}))
	if err := load.Run(ctx, r.cfg); err != nil {
		return err
	}
	r.summarise()
	return nil
}

// trust configures TLS for the authority of --ca.
func (r *loadRun) trust() error {
	if r.ca == "" {
		return nil
	}
	pem, err := os.ReadFile(r.ca)
	roots := x509.NewCertPool()
	if err == nil && !roots.AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s does not contain a PEM certificate", r.ca)
	}
	if err != nil {
		return experiment.BadInput("--ca: %w", err)
	}
	r.cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	return nil
}

// print prints a sample.
func (r *loadRun) print(s load.Sample) {
	server, own := r.use(r.pid), r.use(os.Getpid())
	seconds := s.For.Seconds()
	_, _ = fmt.Fprintf(r.out, "%s: %d connected, %d leased, %d trials; beats %.0f/s; reports %s", s.At.Sub(r.began).Round(time.Second), s.Connected,
		s.Leased, s.Running, float64(s.Beats)/seconds, decisions(s))
	if s.Waiting > 0 {
		_, _ = fmt.Fprintf(r.out, ", %d waiting since %s", s.Waiting, s.Oldest.Round(time.Millisecond))
	}
	if s.Expired+s.Forgotten+s.Unsent+int64(s.Refused) > 0 {
		_, _ = fmt.Fprintf(r.out, "; %d leases expired, %d boots forgotten, %d uplinks unsent, %d workers refused", s.Expired, s.Forgotten, s.Unsent, s.Refused)
	}
	if r.pid != 0 {
		_, _ = fmt.Fprintf(r.out, "; server %s", cores(r.server, server, s.For))
	}
	_, _ = fmt.Fprintf(r.out, "; load %s\n", cores(r.own, own, s.For))
	r.add(s, server)
	r.server, r.own = server, own
}

// add adds a sample to the summary, which begins once all workers have orders.
func (r *loadRun) add(s load.Sample, server load.Process) {
	if r.steady.IsZero() {
		if s.Leased == r.cfg.Workers {
			r.steady = s.At.Add(r.warmUp)
		}
		return
	}
	if s.At.Before(r.steady) {
		r.first = server
		return
	}
	if r.all.For == 0 && r.first == (load.Process{}) {
		r.first = r.server
	}
	r.all.At, r.all.For = s.At, r.all.For+s.For
	r.all.Beats, r.all.Uplinks, r.all.Orders = r.all.Beats+s.Beats, r.all.Uplinks+s.Uplinks, r.all.Orders+s.Orders
	r.all.Expired, r.all.Forgotten = r.all.Expired+s.Expired, r.all.Forgotten+s.Forgotten
	r.all.Decided = append(r.all.Decided, s.Decided...)
	r.all.Running = s.Running
}

// summarise prints the summary.
func (r *loadRun) summarise() {
	if r.all.For == 0 {
		_, _ = fmt.Fprintln(r.out, "no summary: it begins once all workers have orders, after --warm-up")
		return
	}
	slices.Sort(r.all.Decided)
	_, _ = fmt.Fprintf(r.out, "summary of %s: %d workers, %d devices, %d trials; uplinks %.0f/s; reports %s; %d leases expired", r.all.For.Round(time.Second),
		r.cfg.Workers, r.cfg.Devices, r.all.Running, float64(r.all.Uplinks)/r.all.For.Seconds(), decisions(r.all), r.all.Expired)
	if r.pid != 0 {
		_, _ = fmt.Fprintf(r.out, "; server %s", cores(r.first, r.server, r.all.For))
	}
	_, _ = fmt.Fprintln(r.out)
}

// use returns the use of a process, or zero if it is gone or none was given.
func (r *loadRun) use(pid int) load.Process {
	if pid == 0 {
		return load.Process{}
	}
	p, _ := load.ReadProcess(pid)
	return p
}

// decisions describes the reports of a sample.
func decisions(s load.Sample) string {
	text := fmt.Sprintf("%.0f/s", float64(len(s.Decided))/s.For.Seconds())
	if len(s.Decided) > 0 {
		q := func(q float64) time.Duration { return load.Quantile(s.Decided, q).Round(10 * time.Microsecond) }
		text += fmt.Sprintf(" decided in p50 %s, p99 %s, at most %s", q(.5), q(.99), q(1))
	}
	return text
}

// cores describes the use of a process between two samples.
func cores(before, after load.Process, over time.Duration) string {
	if after.Resident == 0 {
		return "gone"
	}
	busy := after.Busy - before.Busy
	if busy < 0 { // another process
		busy = after.Busy
	}
	return fmt.Sprintf("%.2f cores %s", busy.Seconds()/over.Seconds(), humanize.IBytes(uint64(after.Resident)))
}
