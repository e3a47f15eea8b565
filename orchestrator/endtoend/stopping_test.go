package endtoend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// changes returns functions that call each changing method of the API once for an external sweep. Its soup is of a
// trial that has saved.
func (s *server) changes(sweep, saves string) map[string]func(context.Context) error {
	put := func(ctx context.Context, data []byte) error {
		w, err := s.PutBlob(ctx)
		if err == nil {
			err = w.Send(&outbidv1.PutBlobRequest{Data: data})
		}
		if w != nil {
			_, err = w.CloseAndRecv()
		}
		return err
	}
	soup := func(ctx context.Context) error {
		data := []byte("weights")
		sum := sha256.Sum256(data)
		w, err := s.PutSoup(ctx)
		if err != nil {
			return err
		}
		_ = w.Send(&outbidv1.PutSoupRequest{Sweep: saves, Data: data, Soup: &outbidv1.Soup{
			Bytes: int64(len(data)), Sha256: hex.EncodeToString(sum[:]), Parts: []*outbidv1.SoupPart{{Kept: true}},
		}})
		_, err = w.CloseAndRecv()
		return err
	}
	only := func(_ any, err error) error { return err }
	return map[string]func(context.Context) error{
		"SubmitSweep": func(ctx context.Context) error {
			spec := job{name: "more", tuner: random(1), trials: 1}.bare()
			spec.Workload = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}
			return only(s.SubmitSweep(ctx, &outbidv1.SubmitSweepRequest{Spec: spec}))
		},
		"ControlSweep": func(ctx context.Context) error {
			return only(s.ControlSweep(ctx, &outbidv1.ControlSweepRequest{Sweep: sweep, Command: outbidv1.SweepCommand_SWEEP_COMMAND_RESUME}))
		},
		"ControlTrial": func(ctx context.Context) error {
			return only(s.ControlTrial(ctx, &outbidv1.ControlTrialRequest{Sweep: sweep, Command: outbidv1.TrialCommand_TRIAL_COMMAND_STOP}))
		},
		"ExtendSweep": func(ctx context.Context) error {
			return only(s.ExtendSweep(ctx, &outbidv1.ExtendSweepRequest{Sweep: sweep, Trials: new(int32(1_000_001)), Preview: true}))
		},
		"AnnotateSweep": func(ctx context.Context) error {
			return only(s.AnnotateSweep(ctx, &outbidv1.AnnotateSweepRequest{Sweep: sweep, AddTags: []string{"tag"}}))
		},
		"DeleteSweep": func(ctx context.Context) error {
			return only(s.DeleteSweep(ctx, &outbidv1.DeleteSweepRequest{Sweep: sweep}))
		},
		"PutBlob": func(ctx context.Context) error { return put(ctx, []byte("function")) },
		"PutSoup": soup,
		"AskTrial": func(ctx context.Context) error {
			return only(s.AskTrial(ctx, &outbidv1.AskTrialRequest{Sweep: sweep, Client: "c"}))
		},
		"TellTrial": func(ctx context.Context) error {
			asked, err := s.AskTrial(ctx, &outbidv1.AskTrialRequest{Sweep: sweep, Client: "t"})
			if err != nil || asked.GetTrial() == nil {
				return err
			}
			return only(s.TellTrial(ctx, &outbidv1.TellTrialRequest{
				Sweep: sweep, Trial: asked.GetTrial().GetNumber(), LeaseId: asked.GetLeaseId(), Finished: true,
				Reports: []*outbidv1.Report{{Step: 1, Metrics: map[string]float64{"loss": 1}}},
			}))
		},
		"NewWorkerToken": func(ctx context.Context) error {
			return only(s.NewWorkerToken(ctx, &outbidv1.NewWorkerTokenRequest{Node: "token"}))
		},
		"JoinWorker": func(ctx context.Context) error {
			token, err := s.NewWorkerToken(ctx, &outbidv1.NewWorkerTokenRequest{Node: "joiner"})
			if err != nil {
				return err
			}
			pair, err := nkeys.CreateUser()
			if err != nil {
				return err
			}
			public, err := pair.PublicKey()
			if err != nil {
				return err
			}
			return only(s.JoinWorker(ctx, &outbidv1.JoinWorkerRequest{Token: token.GetToken(), PublicKey: public}))
		},
		"RemoveWorker": func(ctx context.Context) error {
			return only(s.RemoveWorker(ctx, &outbidv1.RemoveWorkerRequest{Node: "joiner"}))
		},
		"ControlNode": func(ctx context.Context) error {
			return only(s.ControlNode(ctx, &outbidv1.ControlNodeRequest{Node: "joiner", Command: outbidv1.NodeCommand_NODE_COMMAND_CORDON}))
		},
		"RunRetention": func(ctx context.Context) error {
			return only(s.RunRetention(ctx, &outbidv1.RunRetentionRequest{}))
		},
		"SetTenant": func(ctx context.Context) error {
			return only(s.SetTenant(ctx, &outbidv1.SetTenantRequest{Tenant: &outbidv1.Tenant{Name: "busy", Weight: 2}}))
		},
		"SetSecret": func(ctx context.Context) error {
			return only(s.SetSecret(ctx, &outbidv1.SetSecretRequest{Tenant: "busy", Name: "token", Value: "a secret value"}))
		},
		"DeleteSecret": func(ctx context.Context) error {
			return only(s.DeleteSecret(ctx, &outbidv1.DeleteSecretRequest{Tenant: "busy", Name: "token"}))
		},
		"CreateToken": func(ctx context.Context) error {
			return only(s.CreateToken(ctx, &outbidv1.CreateTokenRequest{Name: "ci", Tenant: "busy", Role: "user"}))
		},
		"RotateToken": func(ctx context.Context) error {
			return only(s.RotateToken(ctx, &outbidv1.RotateTokenRequest{Name: "ci", Tenant: "busy"}))
		},
		"RevokeToken": func(ctx context.Context) error {
			return only(s.RevokeToken(ctx, &outbidv1.RevokeTokenRequest{Name: "ci", Tenant: "busy"}))
		},
		"RemoveTenant": func(ctx context.Context) error {
			return only(s.RemoveTenant(ctx, &outbidv1.RemoveTenantRequest{Tenant: "busy"}))
		},
	}
}

// load calls every method of the API without pauses, over gRPC and REST, until the server's process has ended.
type load struct {
	s     *server
	group sync.WaitGroup
	mu    sync.Mutex
	seen  map[string]int // by method and code
	wrong []string
	began map[string]chan struct{}
}

// startLoad returns after each method was called.
func (s *server) startLoad(e *entry, external string) *load {
	s.t.Helper()
	calls := s.changes(external, e.id)
	for _, name := range writes {
		if calls[name] == nil {
			s.t.Errorf("the API's method %s is not called", name)
		}
	}
	for name, read := range s.reads() {
		calls[name] = func(ctx context.Context) error { return read(ctx, e) }
	}
	for name, follow := range s.followers(e) {
		calls[name+" to the end"] = follow
	}
	for _, path := range []string{"/v1/sweeps", "/v1/sweeps/" + e.id + "/reports", "/v1/server", "/v1/tenants", "/v1/sweeps/" + external + ":ask"} {
		calls["REST "+path] = func(ctx context.Context) error { return s.rest(ctx, path) }
	}
	l := &load{s: s, seen: map[string]int{}, began: map[string]chan struct{}{}}
	for name, call := range calls {
		l.began[name] = make(chan struct{})
		l.group.Go(func() { l.loop(name, call) })
	}
	for name, began := range l.began {
		if strings.HasSuffix(name, "to the end") {
			continue
		}
		select {
		case <-began:
		case <-time.After(patience):
			s.t.Fatalf("no answer of %s", name)
		}
	}
	return l
}

// rest converts the answer of REST to a gRPC error.
func (s *server) rest(ctx context.Context, path string) error {
	method, body := http.MethodGet, ""
	if strings.HasSuffix(path, ":ask") {
		method, body = http.MethodPost, `{"client": "rest"}`
	}
	req, err := http.NewRequestWithContext(ctx, method, s.Info.API+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error()) // the server does not listen
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return status.Error(codes.Unavailable, err.Error()) // cut off
	case resp.StatusCode == http.StatusOK && !bytes.Contains(text, []byte(`"code":"`)):
		return nil
	case resp.StatusCode == http.StatusServiceUnavailable || bytes.Contains(text, []byte("UNAVAILABLE")):
		return status.Error(codes.Unavailable, string(text))
	case resp.StatusCode < 500:
		return status.Error(codes.FailedPrecondition, string(text))
	default:
		return status.Errorf(codes.Internal, "%s: %s", resp.Status, text)
	}
}

func (l *load) loop(name string, call func(context.Context) error) {
	first := sync.OnceFunc(func() { close(l.began[name]) })
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := call(ctx)
		cancel()
		l.note(name, err)
		first()
		select {
		case <-l.s.ended:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// note counts an answer, and records those that blame the server's code for its stop.
func (l *load) note(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	code := status.Code(err)
	l.seen[fmt.Sprint(name, " ", code)]++
	switch code {
	case codes.Internal, codes.Unknown, codes.Canceled, codes.DataLoss, codes.DeadlineExceeded:
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %v", name, err))
	}
}

// end waits for the calls, and fails if one was answered with an internal error.
func (l *load) end() {
	l.s.t.Helper()
	<-l.s.ended
	l.group.Wait()
	for _, wrong := range l.wrong[:min(len(l.wrong), 40)] {
		l.s.t.Error(wrong)
	}
	l.s.t.Logf("%d calls went wrong; answers by method and code: %v", len(l.wrong), slices.Sorted(maps.Keys(l.seen)))
}

// TestAServerThatEndsIsUnavailable checks that no pending call is answered with an internal error when a server ends in
// any way.
func TestAServerThatEndsIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *server, *bus.Server){
		"it is stopped": func(_ *testing.T, s *server, _ *bus.Server) { s.stop() },
		"NATS ends": func(t *testing.T, s *server, nats *bus.Server) {
			t.Helper()
			if err := nats.Close(); err != nil {
				t.Fatal(err)
			}
			s.repeats("waiting for NATS", 1)
			s.stop()
		},
		"another leads": func(t *testing.T, s *server, nats *bus.Server) {
			t.Helper()
			nc, err := bus.Connect(t.Context(), bus.ConnConfig{Server: nats})
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			lead, err := bus.Campaign(t.Context(), nc, bus.Candidate{ID: "another", Force: true})
			if err != nil {
				t.Fatal(err)
			}
			<-s.ended
			if err := lead.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, locks := t.TempDir(), t.TempDir()
			nats, err := bus.StartServer(bus.ServerConfig{Dir: filepath.Join(dir, "nats")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = nats.Close() })
			s := serveData(t, dir, "one", "serve", "--lease", "4s", "--nats", nats.URL(), "--data", filepath.Join(dir, "one"))
			start(t, dir, "worker", "--nats", nats.URL(), "--keys", s.Info.Keys, "--name", "w", "--devices", "cpu:1", "--dir", filepath.Join(dir, "w"))
			e := &entry{job: job{name: "busy", mode: "well", tuner: random(1_000_000), trials: 1}}
			e.spec = e.job.spec(t, locks)
			e.id = s.submit(e.spec)
			s.waitSteps(e.id, 3)
			l := s.startLoad(e, s.external("elsewhere", 1_000_000).sweep)
			end(t, s, nats)
			l.end()
		})
	}
}
