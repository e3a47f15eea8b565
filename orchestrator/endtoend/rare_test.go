package endtoend

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// rare is a server with two tenants and an admin, and the rare events of the test.
type rare struct {
	*limited
	dir string
	// ended is a sweep that has ended.
	ended string
}

// TestRareEventsCostNoSteps (M1 to M7 and the low findings) checks that another tenant's trial keeps its rate while
// sweeps are deleted, history files are damaged, tokens change, calls are denied, names contain bidirectional controls,
// a standby waits and everything is read.
func TestRareEventsCostNoSteps(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can run each trial as a separate user, as a server with tokens does")
	}
	dir := t.TempDir()
	l := &limited{tokens: map[string]string{"": token(t, dir, "--name", "root", "--role", "admin")}}
	l.tokens["bad"] = token(t, dir, "--name", "bad", "--tenant", "bad")
	l.tokens["viewer"] = token(t, dir, "--name", "prometheus", "--tenant", "*", "--role", "viewer")
	s := serve(t, dir, "up", "--devices", "cpu:4", "--policy", "drf", "--tokens", filepath.Join(dir, "tokens"))
	s.OutbidServiceClient = l.client(s)
	l.containment = containOn(t, dir, s)
	r := &rare{limited: l, dir: dir}
	standby := start(t, dir, "serve", "--standby", "--nats", s.Info.NATS, "--keys", s.Info.Keys, "--data", filepath.Join(dir, "standby"),
		"--store", filepath.Join(dir, "data", "store"), "--tokens", filepath.Join(dir, "tokens"), "--api", freeAddress(t))
	standby.until("standing by")
	for round := range 2 {
		for _, event := range []struct {
			name string
			do   func(*testing.T, int)
		}{
			{"a sweep ends whose environment has a secret", r.endsWithASecret},
			{"its history is damaged", r.damage},
			{"what it left is read", r.readAll},
			{"it is deleted", r.delete},
			{"calls are denied", r.denied},
			{"a token is replaced", r.rotate},
			{"a viewer asks for prices", r.prices},
			{"names turn text around", r.spoof},
		} {
			before := r.sweep(r.healthy).GetSteps()
			event.do(t, round)
			t.Logf("%s: %d steps", event.name, r.sweep(r.healthy).GetSteps()-before)
		}
	}
	r.stillTrains()
	standby.stop()
	r.stop()
}

func (r *rare) endsWithASecret(_ *testing.T, round int) {
	r.ended = r.as("bad").run(fmt.Sprint("rare", round), `for i in $(seq 200); do echo '{"step": '$i', "loss": 1}' >> $OUTBID_REPORT; done; exit 3`,
		func(sp *outbidv1.SweepSpec) {
			sp.Workload.(*outbidv1.SweepSpec_Program).Program.Env = map[string]string{"API_KEY": "sk-0123456789"} //nolint:forcetypeassert // it is a program
		})
	r.wait(r.ended)
}

// damage flips a bit in the server's file of the sweep's reports, if it exists yet.
func (r *rare) damage(t *testing.T, _ int) {
	if files, _ := filepath.Glob(filepath.Join(r.dir, "data", "history", r.ended+".reports")); len(files) > 0 {
		flipBit(t, files[0])
	}
}

func (r *rare) readAll(t *testing.T, _ int) {
	for _, path := range []string{
		"/v1/sweeps", "/v1/sweeps/" + r.ended, "/v1/sweeps/" + r.ended + "/trials", "/v1/sweeps/" + r.ended + "/reports", "/v1/prices", "/v1/nodes", "/metrics",
	} {
		if code := r.get(path, r.tokens[""]); code != http.StatusOK {
			t.Errorf("GET %s: %d", path, code)
		}
	}
}

func (r *rare) delete(t *testing.T, _ int) {
	if _, err := r.as("bad").DeleteSweep(t.Context(), &outbidv1.DeleteSweepRequest{Sweep: r.ended}); err != nil {
		t.Error(err)
	}
}

func (r *rare) denied(t *testing.T, _ int) {
	for range 15 {
		if code := r.get("/v1/sweeps", "outbid_no-such-token"); code != http.StatusUnauthorized {
			t.Errorf("an unknown token: %d", code)
		}
		_, err := r.as("viewer").SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: r.told("denied")})
		if err == nil {
			t.Error("a viewer submits")
		}
		_, err = r.as("bad").ControlSweep(t.Context(), &outbidv1.ControlSweepRequest{Sweep: r.healthy, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP})
		if err == nil {
			t.Error("a tenant stops another's sweep")
		}
	}
}

// rotate replaces the tenant's token.
func (r *rare) rotate(t *testing.T, _ int) {
	old, file := r.tokens["bad"], filepath.Join(r.dir, "tokens")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, " bad ") {
			kept.WriteString(line)
		}
	}
	if err := os.WriteFile(file, []byte(kept.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r.tokens["bad"] = token(t, r.dir, "--name", "bad", "--tenant", "bad")
	poll(t, "the new token to count, and the old one no more", func() bool {
		return r.get("/v1/sweeps", r.tokens["bad"]) == http.StatusOK && r.get("/v1/sweeps", old) == http.StatusUnauthorized
	})
}

// prices reads the prices as a viewer of all tenants.
func (r *rare) prices(t *testing.T, _ int) {
	if code := r.get("/v1/prices", r.tokens["viewer"]); code != http.StatusOK {
		t.Errorf("GET /v1/prices as a viewer: %d", code)
	}
}

// spoof submits sweeps whose names and labels contain a bidirectional control; both are rejected.
func (r *rare) spoof(t *testing.T, _ int) {
	const turned = "live\u202Eexe.evil"
	named, labelled := r.told(turned), r.told("labelled")
	labelled.Labels = map[string]string{"team": turned}
	for field, spec := range map[string]*outbidv1.SweepSpec{"name": named, "labels": labelled} {
		_, err := r.as("bad").SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: spec})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), "U+202E") {
			t.Errorf("a control in %s: %v", field, err)
		}
	}
}

// get returns the status of a REST answer, after reading it.
func (r *rare) get(path, token string) int {
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.Info.API+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
