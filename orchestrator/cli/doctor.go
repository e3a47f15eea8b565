package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/outbid-dev/outbid/orchestrator/control"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// checkView is the result of one check.
type checkView struct {
	Name   string `json:"name" doc:"what was checked"`
	OK     bool   `json:"ok" doc:"whether it passed"`
	Detail string `json:"detail" doc:"what was found"`
	Fix    string `json:"fix" doc:"how to fix a failure; empty if it passed"`
}

func (k *clusterCommands) doctorCommand() *cobra.Command {
	var out format
	var python string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the server, NATS, the store, workers, versions and Python",
		Long: `Doctor checks the server and the services that it needs (NATS, the store, workers), whether the versions match,
whether this machine's Python has Outbid's SDK, and how a worker on this machine would confine trials. Each line is ok
or FAIL, with a fix for a failure. It also shows the server's policy with all options.

The exit code is 1 if any check fails.`,
		Example: `  outbid doctor
  outbid doctor --server https://tuner.example.org:7700 --ca ca.pem --token-file token`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := append(k.checkServer(cmd.Context()), k.checkPython(cmd.Context(), python))
			checks = append(checks, checkConfined()...)
			failed := false
			l := newLister(k.stdout, out, []string{"CHECK", "", "FOUND"}, checkRow)
			l.table.width, l.table.fold = k.columns(), true
			for _, c := range checks {
				failed = failed || !c.OK
				if err := l.add(c); err != nil {
					return err
				}
				if out == formatTable && !c.OK && c.Fix != "" {
					l.table.rows = append(l.table.rows, []string{"", "", "  fix: " + c.Fix})
				}
			}
			if err := l.close(""); err != nil {
				return err
			}
			if failed {
				return exitSilently(exitFailed)
			}
			return nil
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().StringVar(&python, "python", "python3", "Python interpreter to check")
	return cmd
}

func checkRow(c checkView) []string {
	word := "ok"
	if !c.OK {
		word = "FAIL"
	}
	return []string{clean(c.Name), word, clean(c.Detail)}
}

// doctorTimeout limits each of the doctor's calls.
const doctorTimeout = 10 * time.Second

// checkServer checks the server. If it does not answer, that is the only result.
func (k *clusterCommands) checkServer(ctx context.Context) []checkView {
	bad := func(err error, fix string) []checkView {
		_, line := exitMessage(err)
		return []checkView{{Name: "server", Detail: line, Fix: fix}}
	}
	c, err := k.connect()
	if unreachableError(err) {
		return bad(err, "outbid up")
	}
	if err != nil {
		return bad(err, "outbid doctor --server "+defaultServer)
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	info, err := c.GetServerInfo(ctx, &outbidv1.GetServerInfoRequest{Thorough: true})
	if err != nil && unreachableError(err) {
		return bad(err, c.target.fixUnreachable(err))
	}
	if errors.Is(err, context.DeadlineExceeded) || isCode(err, codes.DeadlineExceeded) {
		return []checkView{{
			Name:   "server",
			Detail: fmt.Sprintf("%s accepts connections but does not answer within %s", c.target.url, doctorTimeout),
			Fix:    "it waits for its ledger: free space on the disk of NATS, restart NATS, then the server; its log has details",
		}}
	}
	if err != nil {
		return bad(err, "outbid doctor --token-file FILE")
	}
	checks := []checkView{
		{Name: "server", OK: true, Detail: fmt.Sprintf("%s, version %s, up for %s, ledger at %s", c.target.url,
			info.GetVersion(), formatDuration(k.now().Sub(info.GetStarted().AsTime()).Seconds()),
			formatCount(int64(info.GetLedgerSeq())))},
		k.checkVersion("version", "the server", info.GetVersion()),
		{Name: "policy", OK: true, Detail: control.PolicyText(info.GetPolicy(), info.GetPolicyOptions())},
	}
	for _, check := range info.GetChecks() {
		checks = append(checks, checkView{
			Name: check.GetName(), OK: check.GetOk(), Detail: check.GetDetail(), Fix: check.GetFix(),
		})
	}
	return append(checks, k.checkNodes(ctx, c)...)
}

// fixUnreachable returns what to do about a server that does not answer.
func (t target) fixUnreachable(err error) string {
	_, line := exitMessage(err)
	switch {
	case strings.HasPrefix(line, "cannot trust"):
		return "outbid doctor --ca FILE"
	case strings.Contains(line, "does not accept unencrypted connections"):
		return "outbid doctor --server https://HOST:PORT --ca FILE"
	case strings.Contains(line, "accepts connections but does not answer"):
		return "restart the server; its log has details"
	case strings.Contains(line, "is starting or a standby"):
		return "outbid doctor --server URL, with the URL of the leader; if no server leads, check NATS"
	default:
		return "outbid up"
	}
}

// checkVersion compares the release of a server or worker with that of this binary. Builds of one release work
// together.
func (k *clusterCommands) checkVersion(name, whose, version string) checkView {
	if release(version) == release(k.version) {
		return checkView{Name: name, OK: true, Detail: fmt.Sprintf("%s and this command are %s", whose, release(version))}
	}
	return checkView{
		Name: name, Detail: fmt.Sprintf("%s is %s, this command is %s", whose, version, k.version),
		Fix: "install the same version of outbid on every machine, then restart it",
	}
}

// checkNodes checks for running workers, lost ones, and other versions.
func (k *clusterCommands) checkNodes(ctx context.Context, c *connection) []checkView {
	got, err := c.ListNodes(ctx, &outbidv1.ListNodesRequest{})
	if err != nil {
		_, line := exitMessage(err)
		return []checkView{{Name: "workers", Detail: line, Fix: "outbid nodes"}}
	}
	var up, devices int
	var checks []checkView
	for _, n := range got.GetNodes() {
		name := clean(n.GetInfo().GetName())
		switch n.GetState() {
		case outbidv1.NodeState_NODE_STATE_UP, outbidv1.NodeState_NODE_STATE_DRAINING:
			up++
			devices += len(n.GetInfo().GetDevices())
			checks = append(checks, k.checkFaults(viewNode(n))...)
			if release(n.GetInfo().GetVersion()) != release(k.version) {
				checks = append(checks, k.checkVersion("worker "+name, "worker "+name, n.GetInfo().GetVersion()))
			}
		case outbidv1.NodeState_NODE_STATE_LOST:
			checks = append(checks, checkView{
				Name: "worker " + name, Detail: withReason("lost", n.GetReason()),
				Fix: "restart it on " + clean(n.GetInfo().GetHostname()) + ": outbid worker --credentials DIR",
			})
		default:
		}
	}
	if up == 0 {
		return append([]checkView{{
			Name: "workers", Detail: "no worker is up, so no trial can run",
			Fix: "outbid worker here, or 'outbid worker join' on another machine",
		}}, checks...)
	}
	first := checkView{Name: "workers", OK: true, Detail: fmt.Sprintf("%d up, %d devices", up, devices)}
	return append([]checkView{first}, checks...)
}

// checkFaults reports why a node that is up gets no trials.
func (k *clusterCommands) checkFaults(n nodeView) []checkView {
	var checks []checkView
	for _, o := range n.Faults {
		if !o.running {
			continue
		}
		if o.manual { // it is closed on purpose
			checks = append(checks, checkView{Name: "worker " + clean(n.Name), OK: true, Detail: k.faultLine(n.Name, o)})
			continue
		}
		fix := "check that machine; it accepts trials again after a while, or at once when its worker is restarted"
		if o.Sweep != nil {
			fix = "make the sweep's program and data available there, or exclude it with resources.types"
		}
		checks = append(checks, checkView{Name: "worker " + clean(n.Name), Detail: k.faultLine(n.Name, o), Fix: fix})
	}
	for _, w := range n.Warnings {
		checks = append(checks, checkView{Name: "worker " + clean(n.Name), Detail: clean(w), Fix: "see docs/operate/security.md"})
	}
	return checks
}

// checkPython checks whether this machine's Python has the SDK, of the same release as this binary.
func (k *clusterCommands) checkPython(ctx context.Context, python string) checkView {
	check := checkView{Name: "python"}
	path, err := exec.LookPath(python)
	if err != nil {
		check.Detail = python + " is not on the PATH (programs can be tuned without it)"
		check.Fix = "install Python 3, or name one with --python PATH"
		return check
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, "-c", "import sys\nimport outbid\nprint(sys.version.split()[0], outbid.__version__)").CombinedOutput()
	found := strings.TrimSpace(string(text))
	if err != nil {
		lines := strings.Split(found, "\n")
		check.Detail = path + ": " + lines[len(lines)-1]
		check.Fix = path + " -m pip install ./sdk-python, in a checkout of Outbid; or name another with --python PATH"
		return check
	}
	version, sdk, _ := strings.Cut(found, " ")
	check.Detail = fmt.Sprintf("%s is Python %s with outbid %s", path, version, sdk)
	check.OK = sdk == pythonVersion(k.version)
	if !check.OK {
		check.Detail += ", and this command is " + k.version
		check.Fix = fmt.Sprintf("%s -m pip install outbid==%s; or name another Python with --python PATH", path, pythonVersion(k.version))
	}
	return check
}
