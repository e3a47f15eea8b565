package endtoend

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// printed returns a sweep's output, or its last lines.
func (s *server) printed(id string, tail int32) []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := s.StreamLogs(ctx, &outbidv1.StreamLogsRequest{Sweep: id, Tail: tail})
	var lines []string
	for err == nil {
		var line *outbidv1.StreamLogsResponse
		if line, err = stream.Recv(); err == nil {
			lines = append(lines, line.GetLine())
		}
	}
	if !errors.Is(err, io.EOF) {
		s.t.Fatal(err)
	}
	return lines
}

func TestWhatOneTenantPrintsPushesOutNobodyElses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	limits := filepath.Join(dir, "limits.yaml")
	if err := os.WriteFile(limits, []byte("tenants: {loud: {log_bytes: 2MiB}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, "up", "--devices", "cpu:1", "--limits", limits)
	says := func(tenant, shell string) *outbidv1.SweepSpec {
		return job{name: tenant, tuner: random(1), trials: 1, change: func(sp *outbidv1.SweepSpec) {
			sp.Tenant = tenant
			sp.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Shell: shell + `
echo "{{\"step\": 1, \"loss\": {height}}}" >> "$OUTBID_REPORT"
echo done > "$OUTBID_CHECKPOINT_OUT"`}}
		}}.spec(t, dir)
	}
	quiet := s.submit(says("quiet", `echo "said once"`))
	s.mustDone(quiet)
	loud := s.submit(says("loud", `head -c 9000000 /dev/urandom | base64 -w 1000; echo "said last"`))
	s.mustDone(loud)
	if lines := s.printed(quiet, 0); len(lines) != 1 || lines[0] != "said once" {
		t.Errorf("the quiet tenant printed %q", lines)
	}
	if lines := s.printed(loud, 3); len(lines) != 3 || lines[2] != "said last" {
		t.Errorf("the loud tenant's last lines: %d", len(lines))
	}
	if n := len(strings.Join(s.printed(loud, 0), "\n")); n > 4<<20 || n < 1<<20 {
		t.Errorf("%d bytes of the loud tenant's are kept", n)
	}
	s.stop()
}

// TestATenantsWeightIsCapped checks that a user cannot set a higher weight than others unless the limits allow it.
func TestATenantsWeightIsCapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens, limits := filepath.Join(dir, "tokens"), filepath.Join(dir, "limits.yaml")
	made := start(t, dir, "token", "new", "--file", tokens, "--name", "ann", "--tenant", "vision")
	<-made.ended
	out, _ := made.out.text()
	if err := os.WriteFile(limits, []byte("tenants: {vision: {max_weight: 2}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, "serve", "--nats-listen", "127.0.0.1:0", "--tokens", tokens, "--limits", limits)
	file := filepath.Join(dir, "ann.token")
	for word := range strings.FieldsSeq(out) {
		if strings.HasPrefix(word, "outbid_") {
			if err := os.WriteFile(file, []byte(word), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	submit := func(weight string) (string, int) {
		sweep := filepath.Join(dir, weight+".yaml")
		text := "name: heavy\nspace: {x: {float: {low: 0, high: 1}}}\nmetric: loss\nmode: min\nweight: " + weight +
			"\ntuner: {random: {max_steps: 1}}\nlimits: {trials: 1}\nprogram: {shell: 'true {x}'}\n"
		if err := os.WriteFile(sweep, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, dir, "submit", sweep, "--server", s.Info.API, "--token-file", file)
		<-p.ended
		text, _ = p.out.text()
		return text, p.cmd.ProcessState.ExitCode()
	}
	if text, code := submit("2"); code != 0 {
		t.Errorf("weight 2: %d %s", code, text)
	}
	want := "weight: 1e+06 is more than the 2 that tenant vision may have"
	if text, code := submit("1000000"); code == 0 || !strings.Contains(text, want) {
		t.Errorf("weight 1e6: %d %s", code, text)
	}
	if _, err := s.ListSweeps(t.Context(), &outbidv1.ListSweepsRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	s.stop()
}
