package pluginhost

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// asProgram is the argument that makes the test binary a program for Start.
const asProgram = "serve-as-a-program"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asProgram {
		Serve(Bidder, func(grpc.ServiceRegistrar) {})
		return
	}
	goleak.VerifyTestMain(m)
}

// patience limits every wait. It is long, because machines that run tests are busy.
const patience = 2 * time.Minute

func start(t *testing.T, kind Kind, command ...string) (*Program, error) {
	t.Helper()
	p, err := Start(t.Context(), kind, command, patience, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Cleanup(p.Close)
	}
	return p, err
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func answers(ctx context.Context, p *Program) error {
	_, err := grpc_health_v1.NewHealthClient(p.Conn()).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
	return err
}

func TestAProgramAnswersUntilItIsClosed(t *testing.T) {
	t.Parallel()
	p, err := start(t, Bidder, self(t), asProgram)
	if err != nil {
		t.Fatal(err)
	}
	if err := answers(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if !p.Exited() {
		t.Error("it still runs")
	}
	p.Close()
}

// gone waits until a program has ended by itself.
func gone(t *testing.T, p *Program) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !p.Exited() {
		if ctx.Err() != nil {
			t.Fatal("it still runs")
		}
		_ = answers(ctx, p)
	}
}

func TestAProgramEndsWithTheServer(t *testing.T) {
	t.Parallel()
	p, err := start(t, Bidder, self(t), asProgram)
	if err != nil {
		t.Fatal(err)
	}
	// As after the end of a killed server, which closes its descriptors.
	if err := p.lifeline.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, p)
}

func TestAKilledProgramIsGoneAtOnce(t *testing.T) {
	t.Parallel()
	p, err := start(t, Bidder, self(t), asProgram)
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if !p.Exited() {
		t.Error("it still runs")
	}
}

// Programs that are closed, killed or do not start leave nothing in the folder for temporary files.
func TestNoSocketIsLeftBehind(t *testing.T) { //nolint:paralleltest // it sets a variable of the environment
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	sockets := func() int {
		found, err := filepath.Glob(filepath.Join(folder, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	for what, end := range map[string]func(*Program){"closed": (*Program).Close, "killed": (*Program).Kill} {
		p, err := start(t, Bidder, self(t), asProgram)
		if err != nil {
			t.Fatal(err)
		}
		if n := sockets(); n != 1 {
			t.Errorf("there are %d sockets while it runs", n)
		}
		end(p)
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("a program that was %s left %v, %v", what, left, err)
		}
	}
	if _, err := start(t, Bidder, "/bin/true"); err == nil {
		t.Error("/bin/true is a plugin")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("a program that did not start left %v, %v", left, err)
	}
}

func TestAFrozenProgramIsEnded(t *testing.T) {
	t.Parallel()
	p, err := start(t, Bidder, "sh", "-c", "exec "+self(t)+" "+asProgram)
	if err != nil {
		t.Fatal(err)
	}
	freeze(t, p)
	p.Close()
	if !p.Exited() {
		t.Error("it still runs")
	}
}

func TestWhatIsNoProgramIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command []string
		want    []string
	}{
		{[]string{"/no/such/program"}, []string{"/no/such/program"}},
		{[]string{"true"}, []string{"not an Outbid plugin"}},
		{[]string{"sh", "-c", "echo what is a plugin >&2; exit 1"}, []string{"not an Outbid plugin", "what is a plugin"}},
		{[]string{"sh", "-c", "echo hello; sleep 60"}, []string{"not an Outbid plugin"}},
	} {
		_, err := start(t, Tuner, c.command...)
		if err == nil {
			t.Fatalf("%q was started", c.command)
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q does not say %q", c.command, err, part)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q has more than one line", err)
		}
	}
}

func TestWhatAProgramStartedDoesNotHoldItUp(t *testing.T) {
	t.Parallel()
	p, err := start(t, Bidder, "sh", "-c", "sleep 600 & exec "+self(t)+" "+asProgram)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if !p.Exited() {
		t.Error("it still runs")
	}
}

func TestAStartCanBeCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Tuner, []string{"sleep", "60"}, time.Minute, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("it was started")
	}
}

// freeze stops a program's process, like a debugger or a lack of memory.
func freeze(t *testing.T, p *Program) {
	t.Helper()
	pid, err := strconv.Atoi(p.client.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}
