package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// logView is a line of a log.
type logView struct {
	Trial  int32      `json:"trial" doc:"number of the trial"`
	Node   string     `json:"node" doc:"node where it ran"`
	Stream string     `json:"stream" doc:"stdout, stderr, or outbid for a line that separates a trial's attempts"`
	Time   *time.Time `json:"time" doc:"time in UTC"`
	Line   string     `json:"line" doc:"the line without its newline"`
}

// logOptions selects how lines are printed.
type logOptions struct {
	out                format
	follow, times, raw bool
}

func (q *queryCommands) logsCommand() *cobra.Command {
	var o logOptions
	var tail int
	cmd := &cobra.Command{
		Use:   "logs SWEEP|SWEEP/TRIAL",
		Short: "Print the output of trials",
		Long: `Logs prints what the training processes of a sweep, or of one trial, wrote to stdout and stderr. For a whole
sweep each line starts with the trial's number. A line from Outbid separates the attempts of a trial. With -f it waits
for more lines until the sweep, or the trial, ends.

On a terminal it removes control sequences, which could recolour, retitle or rewrite the terminal; --raw prints them.
Pipes and files get the unchanged output.`,
		Example: `  outbid logs digits-1/17
  outbid logs -f digits-1
  outbid logs digits/best --tail 20
  outbid logs digits-1 -o jsonl | jq -r 'select(.stream == "stderr").line'`,
		Args:              exactArgs("SWEEP or SWEEP/TRIAL"),
		ValidArgsFunction: q.completeTrials,
		RunE: func(cmd *cobra.Command, args []string) error {
			if tail < 0 {
				return badInput("--tail %d: want a number from 1, or 0 for all", tail)
			}
			r, err := parseRef(args[0])
			if err != nil {
				return err
			}
			c, err := q.connect()
			if err != nil {
				return err
			}
			defer c.close()
			req := &outbidv1.StreamLogsRequest{Follow: o.follow, Tail: int32(min(tail, 1<<30))}
			if err := c.fillLogs(cmd, r, req); err != nil {
				return err
			}
			stream, err := c.StreamLogs(cmd.Context(), req)
			if err != nil {
				return err
			}
			return q.printLogs(stream.Recv, req.Trial == nil, o)
		},
	}
	outputFlag(cmd, &o.out)
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "wait for more until the end")
	cmd.Flags().BoolVarP(&o.times, "times", "t", false, "start each line with its time")
	cmd.Flags().BoolVar(&o.raw, "raw", false, "print control sequences also on a terminal")
	cmd.Flags().IntVar(&tail, "tail", 0, "only the last lines; 0 for all")
	return cmd
}

// fillLogs sets the sweep and trial of a ref in the request.
func (c *connection) fillLogs(cmd *cobra.Command, r ref, req *outbidv1.StreamLogsRequest) error {
	if r.best || r.trial != nil {
		t, sweep, err := c.trial(cmd.Context(), r)
		if err != nil {
			return err
		}
		req.Sweep, req.Trial = sweep.GetId(), new(t.GetNumber())
		return nil
	}
	sweep, err := c.find(cmd.Context(), r.sweep)
	if err != nil {
		return err
	}
	req.Sweep = sweep.GetId()
	return nil
}

// printLogs prints lines until the stream ends. While following, it flushes each line.
func (q *queryCommands) printLogs(next func() (*outbidv1.StreamLogsResponse, error), whole bool, o logOptions) error {
	w := bufio.NewWriterSize(q.stdout, 64<<10)
	l := newLister[logView](w, o.out, nil, nil)
	show := func(line string) string { return line }
	count := 0
	if q.term.out && !o.raw {
		show = newPlainer().plain
	}
	for {
		line, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_ = w.Flush()
			return err
		}
		count++
		if o.out != formatTable {
			v := logView{
				Trial: line.GetTrial(), Node: line.GetNode(), Stream: line.GetStream(), Time: viewTime(line.GetTime()),
				Line: line.GetLine(),
			}
			if err := l.add(v); err != nil {
				return err
			}
			if o.follow {
				_ = l.w.Flush()
			}
		} else {
			line.Line = show(line.GetLine())
			q.writeLogLine(w, line, whole, o.times)
		}
		if o.follow {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	if o.out != formatTable {
		if err := l.close(""); err != nil {
			return err
		}
	}
	if count == 0 && o.out == formatTable {
		q.notef("nothing was printed")
	}
	return w.Flush()
}

func (q *queryCommands) writeLogLine(w io.Writer, line *outbidv1.StreamLogsResponse, whole, times bool) {
	lead := ""
	if times {
		lead = line.GetTime().AsTime().In(q.now().Location()).Format("15:04:05.000") + " "
	}
	if whole {
		lead += fmt.Sprintf("%4d | ", line.GetTrial())
	}
	_, _ = fmt.Fprintf(w, "%s%s\n", lead, line.GetLine())
}
