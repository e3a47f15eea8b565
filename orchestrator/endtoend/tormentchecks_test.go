package endtoend

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// check waits until the healthy sweep is done, and searches for anything that was lost, duplicated or held twice.
func (m *torment) check(healthy string, told *teller) {
	m.t.Helper()
	m.mustWithin(5*time.Minute, "the end of the healthy sweep", func(ctx context.Context, c outbidv1.OutbidServiceClient) error {
		r, err := c.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: healthy})
		if sw := r.GetSweep(); err == nil && sw.GetState() != outbidv1.SweepState_SWEEP_STATE_DONE {
			err = fmt.Errorf("it is %s: %v (%s)", sw.GetState(), sw.GetCounts(), sw.GetReason())
		}
		return err
	})
	m.mustComplete(healthy)
	trained, all := m.reports(healthy), map[toldStep]bool{}
	for key, n := range trained {
		if n != 1 {
			m.t.Errorf("step %d of trial %d of the healthy sweep was reported %d times under lease %d", key.step, key.trial, n, key.lease)
		}
		all[toldStep{key.trial, key.step, 0}] = true
	}
	for trial := range int32(2) {
		for step := range m.steps {
			if !all[toldStep{trial, step + 1, 0}] {
				m.t.Errorf("step %d of trial %d of the healthy sweep is lost", step+1, trial)
			}
		}
	}
	wentBack(m.t, trained)
	kept := m.reports(told.sweep)
	for key := range told.acknowledged {
		if n := kept[key]; n != 1 {
			m.t.Errorf("step %d of trial %d was acknowledged under lease %d, and is kept %d times", key.step, key.trial, key.lease, n)
		}
	}
	m.t.Logf("%d reports were acknowledged", len(told.acknowledged))
	noTwoOwners(m.t, m.locks)
	m.noneLeft()
	m.wrong.Range(func(text, _ any) bool { m.t.Errorf("answered as if the server were wrong: %v", text); return true })
	for name, p := range m.procs {
		text, _ := p.out.text()
		for _, sign := range []string{"panic:", "fatal error:", "DATA RACE"} {
			if strings.Contains(text, sign) {
				m.t.Errorf("%s printed %s", name, sign)
			}
		}
	}
}

// mostAgain is how many steps a trial may repeat: those of half a minute, because the store may be unavailable for that
// long.
const mostAgain = 150

// wentBack fails if a trial that saves each step lost more of its work than it could not store.
func wentBack(t *testing.T, reports map[toldStep]int) {
	t.Helper()
	first, last := map[toldStep]int64{}, map[toldStep]int64{} // of each lease, whose step is 0
	for key := range reports {
		of := toldStep{trial: key.trial, lease: key.lease}
		if from, found := first[of]; !found || key.step < from {
			first[of] = key.step
		}
		last[of] = max(last[of], key.step)
	}
	reached := map[int32]int64{}
	order := slices.SortedFunc(maps.Keys(first), func(a, b toldStep) int { return cmp.Compare(a.lease, b.lease) })
	for _, of := range order {
		if again := reached[of.trial] - first[of]; again > mostAgain {
			t.Errorf("trial %d had done %d steps, and began lease %d at step %d", of.trial, reached[of.trial], of.lease, first[of])
		}
		reached[of.trial] = max(reached[of.trial], last[of])
	}
}

// noneLeft fails if a program of the hostile tenant has outlived its worker, once another worker has started on the
// machine.
func (m *torment) noneLeft() {
	m.procs["worker-a"].kill()
	m.rise("worker-a")
	var left []string
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		left = left[:0]
		all, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			m.t.Fatal(err)
		}
		for _, path := range all {
			if env, err := os.ReadFile(path); err == nil && bytes.Contains(env, []byte(m.mark())) {
				left = append(left, path)
			}
		}
		if len(left) == 0 {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	m.t.Errorf("%d processes of hostile programs are left: %v", len(left), left)
}

// mustComplete fails unless both trials of the healthy sweep have trained to their end without a failure that counts
// against them; lost nodes do not count.
func (m *torment) mustComplete(healthy string) {
	m.t.Helper()
	var trials []*outbidv1.Trial
	m.must("the trials of the healthy sweep", func(ctx context.Context, c outbidv1.OutbidServiceClient) error {
		r, err := c.ListTrials(ctx, &outbidv1.ListTrialsRequest{Sweep: healthy})
		trials = r.GetTrials()
		return err
	})
	for _, trial := range trials {
		if trial.GetState() != outbidv1.TrialState_TRIAL_STATE_COMPLETED || trial.GetRestarts() > 0 {
			m.t.Fatalf("trial %d of the healthy sweep is %s at step %d after %d restarts: %s", trial.GetNumber(), trial.GetState(), trial.GetStep(),
				trial.GetRestarts(), trial.GetReason())
		}
	}
}

// toldStep is a step of a trial that was reported under a lease. A trial that restarts from an earlier checkpoint
// repeats the later steps under a later lease.
type toldStep struct {
	trial int32
	step  int64
	lease uint64
}

// reports counts the reports of each step.
func (m *torment) reports(sweep string) map[toldStep]int {
	m.t.Helper()
	var found map[toldStep]int
	m.must("the reports of "+sweep, func(ctx context.Context, c outbidv1.OutbidServiceClient) error {
		found = map[toldStep]int{}
		stream, err := c.ListReports(ctx, &outbidv1.ListReportsRequest{Sweep: sweep})
		return drain(stream, err, func(r *outbidv1.ListReportsResponse) error {
			for _, one := range r.GetReports() {
				found[toldStep{one.GetTrial(), one.GetReport().GetStep(), one.GetReport().GetLeaseId()}]++
			}
			return nil
		})
	})
	return found
}

// teller reports the steps of external trials.
type teller struct {
	sweep        string
	acknowledged map[toldStep]bool
	stop         context.CancelFunc
	ended        chan struct{}
}

func (w *teller) end() {
	w.stop()
	<-w.ended
}

// tellPause leaves the machine to others.
const tellPause = 50 * time.Millisecond

// tells starts a client of a tenant that asks for trials and reports their steps, despite failures of the servers.
func (m *torment) tells(tenant string) *teller {
	spec := job{name: "told", tuner: random(25), trials: 100_000}.bare()
	spec.Tenant, spec.Workload = tenant, &outbidv1.SweepSpec_External{External: &outbidv1.External{}}
	ctx, stop := context.WithCancel(context.Background())
	w := &teller{sweep: m.submit(spec), acknowledged: map[toldStep]bool{}, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for ctx.Err() == nil {
			w.trial(ctx, m.clients)
		}
	}()
	return w
}

// trial asks for one trial and reports its steps.
func (w *teller) trial(ctx context.Context, clients []outbidv1.OutbidServiceClient) {
	var asked *outbidv1.AskTrialResponse
	err := either(ctx, clients, func(c outbidv1.OutbidServiceClient) (err error) {
		asked, err = c.AskTrial(ctx, &outbidv1.AskTrialRequest{Sweep: w.sweep, Client: "teller"})
		return err
	})
	if err != nil || asked.GetTrial() == nil {
		return
	}
	trial := asked.GetTrial()
	from := max(trial.GetStep(), trial.GetLast().GetStep())
	for step := from + 1; step <= trial.GetUntilStep(); step++ {
		tell := &outbidv1.TellTrialRequest{
			Sweep: w.sweep, Trial: trial.GetNumber(), LeaseId: asked.GetLeaseId(), Finished: step == trial.GetUntilStep(),
			Reports: []*outbidv1.Report{{Seq: uint64(step - from), Step: step, Metrics: map[string]float64{"loss": 1 / float64(step)}}},
		}
		var answer *outbidv1.TellTrialResponse
		err := either(ctx, clients, func(c outbidv1.OutbidServiceClient) (err error) {
			answer, err = c.TellTrial(ctx, tell)
			return err
		})
		if err != nil || !answer.GetGoOn() {
			return // it is done, its lease has ended, or the test has
		}
		w.acknowledged[toldStep{trial.GetNumber(), step, asked.GetLeaseId()}] = true
		<-time.After(tellPause)
	}
}

// either calls f with each client in turn until one answers, and returns its result.
func either(ctx context.Context, clients []outbidv1.OutbidServiceClient, f func(outbidv1.OutbidServiceClient) error) error {
	for {
		for _, c := range clients {
			err := f(c)
			if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lineOf returns a line of a program's reports.
func lineOf(report map[string]any) string {
	data, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	return string(data)
}
