package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/audit"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// auditLook is how often a follower asks for new records.
	auditLook = time.Second
)

// auditCommands read and verify the audit.
type auditCommands struct{ *client }

// auditFlags select records.
type auditFlags struct {
	since, actor, tenant string
	denied, follow       bool
}

func (au *auditCommands) auditCommand() *cobra.Command {
	var o auditFlags
	var out format
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed or administered what, and what was denied",
		Long: `Audit shows the records of the server's audit, oldest first: calls that change or administer something, denied calls,
edits of the tokens file, and starts and stops of servers. The JSON has the fields of an audit.k8s.io Event. It requires
the role admin or auditor; an auditor of one tenant sees the records of that tenant.

--since takes a duration before now, such as 90m or 7d, or a time, such as 2026-11-27T08:00:00Z.`,
		Example: `  outbid audit --since 7d --denied
  outbid audit --actor ada -o jsonl --follow`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := o.request(au.now())
			if err != nil {
				return err
			}
			if o.follow && out == formatJSON {
				return badInput("--follow: -o json prints one array at the end; use -o jsonl")
			}
			return au.show(cmd.Context(), req, out, o.follow)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.since, "since", "24h", "show records since this `TIME` or for this duration")
	f.StringVar(&o.actor, "actor", "", "show only calls of this `NAME`")
	f.StringVar(&o.tenant, "tenant", "", "show only calls about objects of this `TENANT`")
	f.BoolVar(&o.denied, "denied", false, "show only denied calls")
	f.BoolVarP(&o.follow, "follow", "f", false, "continue with new records")
	outputFlag(cmd, &out)
	cmd.AddCommand(au.verifyCommand())
	return cmd
}

// request returns the request for the records that the flags select.
func (o *auditFlags) request(now time.Time) (*outbidv1.ListAuditRequest, error) {
	since, err := parseSince(o.since, now)
	if err != nil {
		return nil, badInput("--since: %w", err)
	}
	return &outbidv1.ListAuditRequest{
		Since: timestamppb.New(since), Actor: o.actor, Tenant: o.tenant, Denied: o.denied, PageSize: limits.AuditPage,
	}, nil
}

// parseSince parses a time, or a duration before now that may end in d for days.
func parseSince(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if days, found := strings.CutSuffix(text, "d"); found {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < 1e5 {
			return now.Add(-time.Duration(n * 24 * float64(time.Hour))), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%q: must be a duration such as 90m or 7d, or a time such as 2026-11-27T08:00:00Z", text)
}

// show prints the records that a request selects, and with follow also later ones.
func (au *auditCommands) show(ctx context.Context, req *outbidv1.ListAuditRequest, out format, follow bool) error {
	c, err := au.connect()
	if err != nil {
		return err
	}
	defer c.close()
	if follow {
		return au.follow(ctx, c, req, out)
	}
	l := newLister(au.stdout, out, auditHeader(), au.auditRow)
	l.table.width, l.table.spare = au.columns(), []string{"FROM", "RESULT"}
	if err := eachRecord(ctx, c, req, func(r *outbidv1.AuditRecord) error { return l.add(auditView{r}) }); err != nil {
		return err
	}
	return l.close("no records; --since shows earlier ones")
}

// follow prints records as they arrive until ctx ends.
func (au *auditCommands) follow(ctx context.Context, c *connection, req *outbidv1.ListAuditRequest, out format) error {
	tick := time.NewTicker(auditLook)
	defer tick.Stop()
	for {
		err := eachRecord(ctx, c, req, func(r *outbidv1.AuditRecord) error {
			if out == formatTable {
				au.printf("%s\n", strings.Join(au.auditRow(auditView{r}), "  "))
				return nil
			}
			data, err := json.Marshal(auditView{r})
			au.printf("%s\n", data)
			return err
		})
		if err != nil && status.Code(err) != codes.Unavailable {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// eachRecord calls f with the records that a request selects, page by page. Afterwards the request selects later ones.
func eachRecord(ctx context.Context, c *connection, req *outbidv1.ListAuditRequest, f func(*outbidv1.AuditRecord) error) error {
	for {
		page, err := c.ListAudit(ctx, req)
		if err != nil {
			return err
		}
		for _, r := range page.GetRecords() {
			if err := f(r); err != nil {
				return err
			}
		}
		req.AfterSeq = page.GetLastSeq()
		if !page.GetMore() {
			return nil
		}
	}
}

// auditView is a record as JSON: the event itself.
type auditView struct{ record *outbidv1.AuditRecord }

// MarshalJSON implements json.Marshaler.
func (v auditView) MarshalJSON() ([]byte, error) { return v.record.GetEvent().MarshalJSON() }

func auditHeader() []string {
	return []string{"TIME", "ACTOR", "VERB", "OBJECT", "RESULT", "DENIED", "FROM"}
}

// auditRow returns a record's row of the table.
func (au *auditCommands) auditRow(v auditView) []string {
	var e audit.Event
	data, err := v.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		return []string{"", "", "", "record " + strconv.FormatUint(v.record.GetSeq(), 10), "", "", ""}
	}
	object := ""
	if o := e.ObjectRef; o != nil {
		object = strings.Join(notEmpty(o.Resource, o.Namespace, o.Name), " ")
	}
	return []string{
		e.StageTimestamp.In(au.now().Location()).Format(time.DateTime), clean(e.User.Username), clean(e.Verb), clean(object),
		clean(e.ResponseStatus.Reason), clean(e.Denied()), clean(strings.Join(e.SourceIPs, " ")),
	}
}

// notEmpty returns the words that are not empty, each once.
func notEmpty(words ...string) (kept []string) {
	for _, w := range words {
		if w != "" && (len(kept) == 0 || kept[len(kept)-1] != w) {
			kept = append(kept, w)
		}
	}
	return kept
}

func (au *auditCommands) verifyCommand() *cobra.Command {
	var file, anchor string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that no record of the audit was changed, removed or inserted",
		Long: `Verify checks the hash of every record and that each record follows the one before it. It exits with 1 and names the
first record that does not.

It prints an anchor, the last record's sequence and hash. Note it outside of the cluster. --anchor checks that this
record is still there, which finds an audit whose end was removed or that was replaced as a whole. Limits delete the
oldest records, so the first record may have any predecessor.

--file checks lines that 'serve --audit-log' wrote; - is standard input. Without it the command reads the server's
audit, which requires the role admin, or auditor of the tenant *.`,
		Example: `  outbid audit verify
  outbid audit verify --file /var/log/outbid/audit.jsonl`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := &audit.Verifier{}
			if anchor != "" {
				a, err := audit.ParseAnchor(anchor)
				if err != nil {
					return badInput("--anchor: %w", err)
				}
				v.Anchor = &a
			}
			read := au.serverLines
			if file != "" {
				read = func(_ context.Context, add func([]byte) error) error { return au.fileLines(file, add) }
			}
			if err := read(cmd.Context(), v.Add); err != nil {
				return err
			}
			if err := v.End(); err != nil {
				return err
			}
			au.showVerified(v)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "check the lines of this `FILE` instead of the server's audit")
	cmd.Flags().StringVar(&anchor, "anchor", "", "`SEQ:HASH` of a record that must be there")
	_ = cmd.MarkFlagFilename("file")
	return cmd
}

func (au *auditCommands) showVerified(v *audit.Verifier) {
	if v.Records == 0 {
		au.printf("the audit has no records\n")
		return
	}
	au.printf("%d records from %s to %s are intact, numbers %d to %d\n", v.Records, v.From.Format(time.RFC3339), v.To.Format(time.RFC3339),
		v.First.Seq, v.Last.Seq)
	if v.Lost > 0 {
		au.printf("%d records were lost while the audit could not be stored\n", v.Lost)
	}
	au.printf("anchor: %s\n", v.Last)
}

// serverLines calls add with every line of the server's audit.
func (au *auditCommands) serverLines(ctx context.Context, add func([]byte) error) error {
	c, err := au.connect()
	if err != nil {
		return err
	}
	defer c.close()
	req := &outbidv1.ListAuditRequest{Lines: true, PageSize: limits.AuditPage}
	return eachRecord(ctx, c, req, func(r *outbidv1.AuditRecord) error { return add([]byte(r.GetLine())) })
}

// fileLines calls add with every line of a file.
func (au *auditCommands) fileLines(path string, add func([]byte) error) error {
	in := au.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return badInput("--file: %w", err)
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := add([]byte(strings.TrimSuffix(string(line), "\n"))); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
}
