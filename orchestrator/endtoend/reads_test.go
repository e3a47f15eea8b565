package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// writes are the methods of the API that change something; every other one must be in reads.
var writes = []string{"SubmitSweep", "ControlSweep", "ControlTrial", "ExtendSweep", "AnnotateSweep", "PutBlob", "PutSoup", "AskTrial", "TellTrial", "DeleteSweep", "NewWorkerToken", "JoinWorker", "RemoveWorker", "ControlNode", "SetTenant", "RemoveTenant", "RunRetention", "SetSecret", "DeleteSecret", "CreateToken", "RotateToken", "RevokeToken"}

// reads returns functions that call each reading method of the API once for a sweep, and return an error for a wrong
// answer.
func (s *server) reads() map[string]func(context.Context, *entry) error {
	return map[string]func(context.Context, *entry) error{
		"PreviewSweep": func(ctx context.Context, e *entry) error {
			r, err := s.PreviewSweep(ctx, &outbidv1.PreviewSweepRequest{Spec: e.spec, StepSeconds: 1})
			return want(err, e.spec.GetTuner().GetPlugin() != nil || r.GetOutlook() != nil, r)
		},
		"ListSweeps": func(ctx context.Context, e *entry) error {
			r, err := s.ListSweeps(ctx, &outbidv1.ListSweepsRequest{})
			return want(err, slices.ContainsFunc(r.GetSweeps(), func(sw *outbidv1.Sweep) bool { return sw.GetId() == e.id }), r)
		},
		"GetSweep": func(ctx context.Context, e *entry) error {
			r, err := s.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: e.id})
			return want(err, r.GetSweep().GetCounts() != nil, r)
		},
		"ListTrials": func(ctx context.Context, e *entry) error {
			_, numbered := s.ListTrials(ctx, &outbidv1.ListTrialsRequest{Sweep: e.id})
			_, best := s.ListTrials(ctx, &outbidv1.ListTrialsRequest{Sweep: e.id, Order: "best"})
			return errors.Join(numbered, best)
		},
		"ReadColumns": func(ctx context.Context, e *entry) error {
			r, err := s.ReadColumns(ctx, &outbidv1.ReadColumnsRequest{Sweep: e.id})
			return drain(r, err, nil)
		},
		"GetTrial":      s.readTrial,
		"GetCheckpoint": s.readCheckpoint,
		"GetSoup": func(ctx context.Context, e *entry) error {
			r, err := s.GetSoup(ctx, &outbidv1.GetSoupRequest{Sweep: e.id})
			if err = drain(r, err, nil); status.Code(err) == codes.NotFound {
				return nil // the sweep does not have one
			}
			return err
		},
		"ListReports": func(ctx context.Context, e *entry) error {
			r, err := s.ListReports(ctx, &outbidv1.ListReportsRequest{Sweep: e.id})
			return drain(r, err, nil)
		},
		"WatchSweep": func(ctx context.Context, e *entry) error { // followers covers watches until the end
			ctx, leave := context.WithCancel(ctx)
			defer leave()
			w, err := s.WatchSweep(ctx, &outbidv1.WatchSweepRequest{Sweep: e.id, Reports: true})
			if err == nil {
				_, err = w.Recv()
			}
			return err
		},
		"StreamLogs": func(ctx context.Context, e *entry) error {
			r, err := s.StreamLogs(ctx, &outbidv1.StreamLogsRequest{Sweep: e.id})
			return drain(r, err, nil)
		},
		"ListNodes": func(ctx context.Context, _ *entry) error {
			r, err := s.ListNodes(ctx, &outbidv1.ListNodesRequest{})
			return want(err, len(r.GetNodes()) > 0, r)
		},
		"ReadLedger": func(ctx context.Context, _ *entry) error {
			r, err := s.ReadLedger(ctx, &outbidv1.ReadLedgerRequest{})
			return drain(r, err, nil)
		},
		"ListTokens": func(ctx context.Context, _ *entry) error {
			r, err := s.ListTokens(ctx, &outbidv1.ListTokensRequest{})
			if status.Code(err) == codes.FailedPrecondition {
				return nil // the server asks for no tokens
			}
			return want(err, len(r.GetTokens()) == 0, r)
		},
		"ListAudit": func(ctx context.Context, _ *entry) error {
			r, err := s.ListAudit(ctx, &outbidv1.ListAuditRequest{PageSize: 10})
			return want(err, len(r.GetRecords()) > 0, r)
		},
		"ExplainSweep": func(ctx context.Context, e *entry) error {
			r, err := s.ExplainSweep(ctx, &outbidv1.ExplainSweepRequest{Sweep: e.id})
			return want(err, r.GetCause() != "" && r.GetWhy() != "" && r.GetLost() != "" && r.GetOtherwise() != "", r)
		},
		"SimulateLedger": func(ctx context.Context, e *entry) error {
			r, err := s.SimulateLedger(ctx, &outbidv1.SimulateLedgerRequest{Policies: []string{"las"}})
			err = drain(r, err, nil)
			switch status.Code(err) {
			case codes.ResourceExhausted, codes.InvalidArgument, codes.DeadlineExceeded:
				return nil // another one runs, no sweep ran on workers, or the machine is busy
			default:
				return err
			}
		},
		"ForecastCurves": func(ctx context.Context, e *entry) error {
			r, err := s.ForecastCurves(ctx, &outbidv1.ForecastCurvesRequest{Sweep: e.id, Trials: []int32{0}})
			return want(err, len(r.GetForecasts()) > 0 || r.GetReason() != "", r)
		},
		"GetRound":   s.readRound,
		"ListRounds": s.readRounds,
		"GetUsage": func(ctx context.Context, _ *entry) error {
			r, err := s.GetUsage(ctx, &outbidv1.GetUsageRequest{By: []string{"type"}})
			return want(err, r.GetTotal().GetDeviceSeconds() >= 0, r)
		},
		"GetPrices": func(ctx context.Context, _ *entry) error {
			_, err := s.GetPrices(ctx, &outbidv1.GetPricesRequest{})
			return err
		},
		"ListTenants": func(ctx context.Context, e *entry) error {
			r, err := s.ListTenants(ctx, &outbidv1.ListTenantsRequest{})
			for _, tenant := range r.GetTenants() {
				err = errors.Join(err, overQuota(tenant))
			}
			return want(err, len(r.GetTenants()) > 0, r)
		},
		"GetTenant": func(ctx context.Context, e *entry) error {
			r, err := s.GetTenant(ctx, &outbidv1.GetTenantRequest{Tenant: "default"})
			return want(err, r.GetTenant().GetUse().GetSweeps() >= 0, r)
		},
		"ListSecrets": func(ctx context.Context, _ *entry) error {
			_, err := s.ListSecrets(ctx, &outbidv1.ListSecretsRequest{})
			return err
		},
		"CheckAccess": func(ctx context.Context, e *entry) error {
			r, err := s.CheckAccess(ctx, &outbidv1.CheckAccessRequest{Verb: "delete", Name: e.id})
			return want(err, r.GetAllowed() && len(r.GetPermissions()) == 1, r)
		},
		"GetServerInfo": func(ctx context.Context, _ *entry) error {
			r, err := s.GetServerInfo(ctx, &outbidv1.GetServerInfoRequest{})
			return want(err, r.GetLeader() && r.GetLedgerSeq() > 0, r)
		},
	}
}

// overQuota returns an error if a tenant holds more than its quota.
func overQuota(t *outbidv1.TenantState) error {
	all := int32(0)
	for kind, n := range t.GetUse().GetHeld() {
		all += n
		if most, named := t.GetTenant().GetQuota().GetTypes()[kind]; named && n > most {
			return fmt.Errorf("tenant %s holds %d of type %s, its quota is %d", t.GetTenant().GetName(), n, kind, most)
		}
	}
	if q := t.GetTenant().GetQuota(); q != nil && q.Devices != nil && all > q.GetDevices() {
		return fmt.Errorf("tenant %s holds %d devices, its quota is %d", t.GetTenant().GetName(), all, q.GetDevices())
	}
	return nil
}

// want returns err, or an error with the answer if it is not right.
func want(err error, right bool, answer any) error {
	if err == nil && !right {
		err = fmt.Errorf("it answered %v", answer)
	}
	return err
}

// drain reads a stream to its end.
func drain[T any](stream grpc.ServerStreamingClient[T], err error, each func(*T) error) error {
	for err == nil {
		var m *T
		if m, err = stream.Recv(); err == nil && each != nil {
			err = each(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *server) readTrial(ctx context.Context, e *entry) error {
	r, err := s.ListTrials(ctx, &outbidv1.ListTrialsRequest{Sweep: e.id})
	if err != nil || len(r.GetTrials()) == 0 {
		return err
	}
	t, err := s.GetTrial(ctx, &outbidv1.GetTrialRequest{Sweep: e.id, Trial: int32(len(r.GetTrials()) - 1)})
	return want(err, t.GetTrial().GetConfigJson() != "", t)
}

// readCheckpoint downloads the newest checkpoint of the sweep's best trial. If it was deleted after the trial was read,
// that is not an error.
func (s *server) readCheckpoint(ctx context.Context, e *entry) error {
	r, err := s.ListTrials(ctx, &outbidv1.ListTrialsRequest{Sweep: e.id, Order: "best", PageSize: 1})
	if err != nil || len(r.GetTrials()) == 0 || len(r.GetTrials()[0].GetCheckpoints()) == 0 {
		return err
	}
	tr := r.GetTrials()[0]
	newest := tr.GetCheckpoints()[len(tr.GetCheckpoints())-1]
	step := newest.GetStep()
	stream, err := s.GetCheckpoint(ctx, &outbidv1.GetCheckpointRequest{Sweep: e.id, Trial: tr.GetNumber(), Step: &step})
	var data bytes.Buffer
	err = drain(stream, err, func(m *outbidv1.GetCheckpointResponse) error {
		_, err := data.Write(m.GetData())
		return err
	})
	if status.Code(err) == codes.NotFound {
		now, again := s.GetTrial(ctx, &outbidv1.GetTrialRequest{Sweep: e.id, Trial: tr.GetNumber()})
		kept := slices.ContainsFunc(now.GetTrial().GetCheckpoints(), func(c *outbidv1.Checkpoint) bool { return c.GetStep() == step })
		if again == nil && !kept {
			return nil
		}
	}
	if err != nil {
		return err
	}
	if e.job.mode == "fork" {
		return want(nil, strings.Contains(data.String(), "data_offsets"), fmt.Sprintf("%d bytes that are no tensors", data.Len()))
	}
	// The program saves to one file, which may already have been of a later step when the worker read it.
	saved, err := strconv.ParseInt(strings.TrimSpace(data.String()), 10, 64)
	return want(err, saved >= step && saved <= e.longest(), fmt.Sprintf("%q for the checkpoint of step %d", data.String(), step))
}

func (s *server) readRounds(ctx context.Context, e *entry) error {
	_, all := s.ListRounds(ctx, &outbidv1.ListRoundsRequest{})
	_, own := s.ListRounds(ctx, &outbidv1.ListRoundsRequest{Sweep: e.id})
	return errors.Join(all, own)
}

// readRound reads the newest round, which does not exist before the first grant, and the oldest listed.
func (s *server) readRound(ctx context.Context, _ *entry) error {
	r, err := s.ListRounds(ctx, &outbidv1.ListRoundsRequest{})
	if err != nil || len(r.GetRounds()) == 0 {
		return err
	}
	for _, n := range []uint64{0, r.GetRounds()[len(r.GetRounds())-1].GetRound()} {
		one, err := s.GetRound(ctx, &outbidv1.GetRoundRequest{Round: n})
		if err := want(err, len(one.GetRound().GetDecisions()) > 0, one); err != nil {
			return fmt.Errorf("round %d: %w", n, err)
		}
	}
	return nil
}

// readPages reads the pages for browsers and scrapers.
func (s *server) readPages(ctx context.Context, e *entry) error {
	for _, path := range []string{
		"/metrics", "/healthz", "/v1/sweeps", "/v1/sweeps/" + e.id, "/v1/sweeps/" + e.id + "/trials", "/v1/nodes", "/v1/rounds", "/v1/server",
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Info.API+path, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || len(body) == 0 {
			return fmt.Errorf("%s: %s %w: %.500s", path, resp.Status, err, body)
		}
	}
	return nil
}

// followers returns functions that follow a sweep until it has ended.
func (s *server) followers(e *entry) map[string]func(context.Context) error {
	watch := func(reports bool) func(context.Context) error {
		return func(ctx context.Context) error {
			var last outbidv1.SweepState
			seen := map[string]int{}
			w, err := s.WatchSweep(ctx, &outbidv1.WatchSweepRequest{Sweep: e.id, Reports: reports})
			err = drain(w, err, func(m *outbidv1.WatchSweepResponse) error {
				last = m.GetSweep().GetState()
				for _, r := range m.GetReports() {
					seen[fmt.Sprint(r.GetTrial())]++
				}
				return nil
			})
			return want(err, last == outbidv1.SweepState_SWEEP_STATE_DONE && reports == (len(seen) > 0), fmt.Sprint(last, seen))
		}
	}
	return map[string]func(context.Context) error{
		"WatchSweep": watch(false), "WatchSweep with reports": watch(true),
		"StreamLogs": func(ctx context.Context) error {
			r, err := s.StreamLogs(ctx, &outbidv1.StreamLogsRequest{Sweep: e.id, Follow: true})
			return drain(r, err, nil)
		},
	}
}

// readers are clients that read continuously.
type readers struct {
	t      *testing.T
	ended  chan struct{}
	group  sync.WaitGroup
	mu     sync.Mutex
	counts map[string]int
}

// readEvery keeps clients from taking the time that trials need.
const readEvery = 250 * time.Millisecond

// read starts a client for every read of the API, which cycles through the sweeps, and followers of each sweep. A
// method that is neither in writes nor in reads fails the test.
func read(t *testing.T, s *server, sweeps []*entry) *readers {
	t.Helper()
	r := &readers{t: t, ended: make(chan struct{}), counts: map[string]int{}}
	methods := s.reads()
	service := outbidv1.File_outbid_v1_service_proto.Services().ByName("OutbidService").Methods()
	for i := range service.Len() {
		name := string(service.Get(i).Name())
		if (methods[name] == nil) != slices.Contains(writes, name) {
			t.Errorf("the API's method %s: list it in writes if it changes something, and read it in reads if not", name)
		}
	}
	methods["pages"] = s.readPages
	for name, call := range methods {
		r.group.Go(func() { r.loop(name, call, sweeps) })
	}
	for _, e := range sweeps {
		for name, follow := range s.followers(e) {
			r.group.Go(func() { r.once(name+" to the end of "+e.id, follow) })
		}
	}
	return r
}

func (r *readers) loop(name string, call func(context.Context, *entry) error, sweeps []*entry) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		e := sweeps[i%len(sweeps)]
		if !r.once(name+" of "+e.id, func(ctx context.Context) error { return call(ctx, e) }) {
			return
		}
		r.mu.Lock()
		r.counts[name]++
		r.mu.Unlock()
		select {
		case <-r.ended:
			return
		case <-tick.C:
		}
	}
}

func (r *readers) once(name string, call func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := call(ctx)
	if err != nil {
		r.t.Errorf("%s: %v", name, err)
	}
	return err == nil
}

// end waits for pending reads after the sweeps have ended, and fails if one kind of read never succeeded.
func (r *readers) end() {
	r.t.Helper()
	close(r.ended)
	r.group.Wait()
	for name, n := range r.counts {
		if n == 0 {
			r.t.Errorf("%s was never read", name)
		}
	}
	r.t.Logf("reads that succeeded: %v", r.counts)
}

// reported returns the reported steps of a sweep, by trial.
func (s *server) reported(id string) map[int32]map[int64]bool {
	s.t.Helper()
	steps := map[int32]map[int64]bool{}
	stream, err := s.ListReports(s.t.Context(), &outbidv1.ListReportsRequest{Sweep: id})
	err = drain(stream, err, func(m *outbidv1.ListReportsResponse) error {
		for _, r := range m.GetReports() {
			if steps[r.GetTrial()] == nil {
				steps[r.GetTrial()] = map[int64]bool{}
			}
			steps[r.GetTrial()][r.GetReport().GetStep()] = true
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return steps
}
