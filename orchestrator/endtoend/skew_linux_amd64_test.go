package endtoend

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// offClocks are wrong wall clocks.
func offClocks() map[string]time.Duration {
	return map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour}
}

// skewed is a server with a worker and running trials, which were started under a correct clock.
type skewed struct {
	*server
	t      *testing.T
	dir    string
	locks  string
	began  time.Time
	sweep  string
	worker *proc
}

// begin starts a worker and a sweep whose timers would end it soon if time jumped.
func (k *skewed) begin(nats string) {
	k.began = time.Now()
	k.worker = start(k.t, k.dir, "worker", "--nats", nats, "--keys", k.Info.Keys, "--name", "w", "--devices", "cpu:2",
		"--store", filepath.Join(k.dir, "store"), "--dir", filepath.Join(k.dir, "w"))
	k.sweep = k.submit(job{
		name: "timed", mode: "well", tuner: random(80), trials: 3, env: map[string]string{"PACE": "100ms"},
		change: func(s *outbidv1.SweepSpec) { s.Limits.WallTime, s.HangTimeout = "30m", "1m" },
	}.spec(k.t, k.locks))
	k.waitSteps(k.sweep, 20)
}

// goesOn checks the server that took over: nothing ended early, nothing lasts for an hour or a negative time, and new
// timers end on time.
func (k *skewed) goesOn(ahead time.Duration) {
	k.t.Helper()
	k.namesSkew(ahead)
	sw := k.mustDone(k.sweep)
	k.sane("the sweep", sw.GetSubmitted().AsTime(), sw.GetEnded().AsTime())
	for _, trial := range k.trials(k.sweep) {
		what := fmt.Sprintf("trial %d", trial.GetNumber())
		if trial.GetRestarts() != 0 || trial.GetResumes() != 0 || trial.GetNodeLosses() != 0 || trial.GetStep() != 80 {
			k.t.Errorf("the takeover disturbed %s: %v", what, trial)
		}
		k.sane(what, trial.GetCreated().AsTime(), trial.GetEnded().AsTime())
		if s := trial.GetDeviceSeconds(); s < 80*.1/2 || s > time.Since(k.began).Seconds()*1.1 {
			k.t.Errorf("%s used %.1f device-seconds since %s", what, s, time.Since(k.began))
		}
	}
	noTwoOwners(k.t, k.locks)
	k.wallTimeEnds()
	k.lostInTime()
}

// sane checks a start and an end in the ledger's time.
func (k *skewed) sane(what string, from, to time.Time) {
	k.t.Helper()
	if took := to.Sub(from); took <= 0 || took > time.Since(k.began)*11/10+time.Second {
		k.t.Errorf("%s took %s, %s after the test began", what, took, time.Since(k.began))
	}
}

var toldSkew = regexp.MustCompile(`this machine's clock differs .*clock_ahead_by=(\S+)`)

// namesSkew checks that the log, the metrics and the doctor show the server's clock error.
func (k *skewed) namesSkew(ahead time.Duration) {
	k.t.Helper()
	near := func(what string, got time.Duration) {
		if (got - ahead).Abs() > 20*time.Second {
			k.t.Errorf("%s shows that the clock is ahead by %s, want %s", what, got, ahead)
		}
	}
	k.until("this machine's clock differs")
	text, _ := k.out.text()
	got, err := time.ParseDuration(toldSkew.FindStringSubmatch(text)[1])
	if err != nil {
		k.t.Fatal(err)
	}
	near("the log", got)
	resp, err := http.Get(k.Info.API + "/metrics")
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	_, after, _ := strings.Cut(string(body), "\noutbid_clock_skew_seconds ")
	value, _, _ := strings.Cut(after, "\n")
	seconds, parseErr := strconv.ParseFloat(value, 64)
	if err != nil || parseErr != nil {
		k.t.Fatalf("the metrics: %v, %v", err, parseErr)
	}
	near("the metric", time.Duration(seconds*float64(time.Second)))
	alerts := newAlertTest(k.t, map[string]string{"a": k.Info.API})
	alerts.fires("OutbidClocksDiffer")
	alerts.check()
	doctorFinds(k.t, "the clocks of servers differ", "--server", k.Info.API)
	doctor, code := tool(k.t, k.dir, "doctor", "--server", k.Info.API)
	word := "ahead of"
	if ahead < 0 {
		word = "behind"
	}
	if want := word + " the time in the ledger"; code != 1 || !strings.Contains(doctor, want) || !strings.Contains(doctor, "NTP") {
		k.t.Errorf("the doctor does not say %q, exit code %d:\n%s", want, code, doctor)
	}
}

// wallTimeEnds checks a limit that starts under this clock.
func (k *skewed) wallTimeEnds() {
	k.t.Helper()
	const limit = 4 * time.Second
	began := time.Now()
	id := k.submit(job{name: "short", mode: "well", tuner: random(100000), trials: 1, change: func(s *outbidv1.SweepSpec) {
		s.Limits.WallTime = limit.String()
	}}.spec(k.t, k.locks))
	sw := k.wait(id)
	if took := time.Since(began); took < limit*9/10 || !strings.Contains(sw.GetReason(), limit.String()) {
		k.t.Errorf("a sweep of %s took %s and ended as %q", limit, took, sw.GetReason())
	}
}

// lostInTime checks that a dead worker is noticed when its lease has expired: not earlier, and not much later.
func (k *skewed) lostInTime() {
	k.t.Helper()
	k.worker.kill()
	died := time.Now()
	poll(k.t, "the dead worker to be noticed", func() bool {
		nodes := k.nodes()
		return len(nodes) == 1 && nodes[0].GetState() == outbidv1.NodeState_NODE_STATE_LOST
	})
	if took := time.Since(died); took < 3*time.Second { // its lease is 4 s, and its last message was up to a second earlier
		k.t.Errorf("its worker was given up after %s", took)
	}
}

// TestAFailoverToAClockThatIsOff checks that leases, limits and durations are unaffected when a leader is killed and a
// server with a wrong clock takes over.
func TestAFailoverToAClockThatIsOff(t *testing.T) {
	t.Parallel()
	for name, ahead := range offClocks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, nats := &skewed{t: t, dir: t.TempDir(), locks: t.TempDir()}, startNATS(t)
			args := func(name string) []string {
				return []string{
					"serve", "--nats", nats, "--standby", "--lease", "4s", "--store", filepath.Join(k.dir, "store"),
					"--data", filepath.Join(k.dir, name),
				}
			}
			first := serveData(t, k.dir, "one", args("one")...)
			k.server = first
			ready := filepath.Join(t.TempDir(), "two.json")
			second := startWithClock(t, k.dir, ahead, append(args("two"), "--keys", first.Info.Keys, "--ready-file", ready,
				"--api", "127.0.0.1:0")...)
			second.until("standing by")
			k.begin(nats)
			first.kill()
			waitFile(t, second, ready)
			k.server = &server{proc: second}
			k.connect(ready)
			k.goesOn(ahead)
		})
	}
}

// TestARestartWithAClockThatIsOff checks a server with its own NATS that is killed and restarts after the machine's
// clock was set.
func TestARestartWithAClockThatIsOff(t *testing.T) {
	t.Parallel()
	for name, ahead := range offClocks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &skewed{t: t, dir: t.TempDir(), locks: t.TempDir()}
			args := []string{"serve", "--lease", "4s", "--store", filepath.Join(k.dir, "store"), "--data", filepath.Join(k.dir, "one")}
			first := serveData(t, k.dir, "one", append(args, "--nats-listen", "127.0.0.1:0")...)
			k.server = first
			k.begin(first.Info.NATS)
			first.kill()
			ready := filepath.Join(t.TempDir(), "two.json")
			second := startWithClock(t, k.dir, ahead, append(args, "--ready-file", ready, "--api", "127.0.0.1:0",
				"--nats-listen", strings.TrimPrefix(first.Info.NATS, "nats://"))...)
			waitFile(t, second, ready)
			k.server = &server{proc: second}
			k.connect(ready)
			k.goesOn(ahead)
		})
	}
}
