package endtoend

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sample is the result of one scrape of /metrics.
type sample struct {
	text   string
	values map[string]float64
	// counters are the series that must not fall while their process lives.
	counters map[string]bool
}

// scrapeMetrics reads /metrics of a server, which must answer.
func scrapeMetrics(address string) (sample, error) {
	client := http.Client{Timeout: patience}
	resp, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		return sample{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	if err != nil {
		return sample{}, err
	}
	s := sample{text: string(body), values: map[string]float64{}, counters: map[string]bool{}}
	kinds := map[string]string{}
	for line := range strings.Lines(s.text) {
		line = strings.TrimSpace(line)
		if kind, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, is, _ := strings.Cut(kind, " ")
			kinds[name] = is
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return sample{}, fmt.Errorf("%q: %w", line, err)
		}
		series := line[:at]
		name, _, _ := strings.Cut(series, "{")
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		s.values[series] = value
		s.counters[series] = kinds[name] == "counter" || kinds[base] == "histogram"
	}
	return s, nil
}

// fromLedger matches the counters that are the same on every server and after every start.
var fromLedger = regexp.MustCompile(`^outbid_(tenant_[a-z_]+|device_seconds)_total(\{|$)`)

// watcher scrapes servers continuously, like Prometheus, and fails the test if a counter falls.
type watcher struct {
	t testing.TB

	mu    sync.Mutex
	last  map[string]float64 // by process and series
	ever  map[string]float64 // the counters from the ledger, by series
	names map[string]bool    // of every metric that was seen
}

func newWatcher(t testing.TB) *watcher {
	return &watcher{t: t, last: map[string]float64{}, ever: map[string]float64{}, names: map[string]bool{}}
}

// take scrapes a process, and compares the sample with earlier ones. Calls are serialised.
func (w *watcher) take(process, address string) (sample, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, err := scrapeMetrics(address)
	if err != nil {
		return s, err
	}
	for series, value := range s.values {
		name, _, _ := strings.Cut(series, "{")
		w.names[name] = true
		if !s.counters[series] {
			continue
		}
		if before := w.last[process+series]; value < before {
			w.t.Errorf("%s of %s fell from %v to %v", series, process, before, value)
		}
		w.last[process+series] = value
		if fromLedger.MatchString(series) {
			if before := w.ever[series]; value < before {
				w.t.Errorf("%s fell from %v to %v on %s", series, before, value, process)
			}
			w.ever[series] = value
		}
	}
	for series := range w.ever {
		if _, there := s.values[series]; !there && s.values["outbid_ready"] == 1 {
			w.t.Errorf("%s is no longer exported by %s", series, process)
		}
	}
	return s, nil
}

// saw reports whether a metric with that name was exported.
func (w *watcher) saw(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names[name]
}

// once scrapes a process now.
func (w *watcher) once(process, address string) sample {
	w.t.Helper()
	s, err := w.take(process, address)
	if err != nil {
		w.t.Fatalf("scrape %s: %v", process, err)
	}
	return s
}

// follow scrapes a process in the background until it ends.
func (w *watcher) follow(process string, p *proc, address string) {
	var following sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	following.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-p.ended:
				return
			case <-ctx.Done():
				return
			}
			_, _ = w.take(process, address) // it may be starting or ending
		}
	})
	w.t.Cleanup(func() {
		stop()
		following.Wait()
	})
}

// orchestratorPair is two servers on one NATS: a leader and a standby.
type orchestratorPair struct {
	t         *testing.T
	dir, nats string
	keys      string
	w         *watcher
}

// start starts one of the pair.
func (p *orchestratorPair) start(name string, args ...string) (s *server, address, ready string) {
	p.t.Helper()
	address, ready = freeAddress(p.t), filepath.Join(p.t.TempDir(), name+".json")
	args = append([]string{
		"serve", "--nats", p.nats, "--lease", "4s", "--data", filepath.Join(p.dir, name), "--store", filepath.Join(p.dir, "store"),
		"--keys", p.keys, "--api", address, "--ready-file", ready,
	}, args...)
	s = &server{proc: start(p.t, p.dir, args...)}
	p.w.follow(fmt.Sprintf("%s (%d)", name, s.cmd.Process.Pid), s.proc, address)
	return s, address, ready
}

// TestCountersNeverFall checks that a counter never falls while its process lives, and that the ledger's counters never
// fall at all: not when a sweep is deleted, when the server is killed and restarted, or when another one takes over. A
// standby is scraped as well.
func TestCountersNeverFall(t *testing.T) {
	t.Parallel()
	dir, locks := t.TempDir(), t.TempDir()
	p := &orchestratorPair{t: t, dir: dir, nats: startNATS(t), keys: filepath.Join(dir, "keys"), w: newWatcher(t)}
	one, addressOne, ready := p.start("one")
	waitFile(t, one.proc, ready)
	one.connect(ready)
	start(t, dir, "worker", "--nats", p.nats, "--keys", p.keys, "--name", "w", "--devices", "cpu:3", "--dir", filepath.Join(dir, "w"))
	two, addressTwo, readyTwo := p.start("two", "--standby")
	two.until("standing by")

	lives := job{name: "lives", mode: "well", tuner: random(1_000_000), trials: 1, env: map[string]string{"PACE": "20ms"}}
	lasting := one.submit(lives.spec(t, locks))
	one.waitSteps(lasting, 3)
	done := one.submit(job{name: "done", mode: "crash", tuner: random(5), trials: 4}.spec(t, locks))
	one.mustDone(done)
	before := p.w.once("one", addressOne)
	for series, least := range map[string]float64{
		`outbid_tenant_trials_ended_total{state="completed",tenant="default"}`: 4,
		`outbid_tenant_fork_failures_total{kind="error",tenant="default"}`:     4,
		`outbid_tenant_sweeps_submitted_total{tenant="default"}`:               2,
		`outbid_tenant_sweeps_ended_total{state="done",tenant="default"}`:      1,
		`outbid_tenant_device_seconds_total{tenant="default",type="cpu"}`:      0.1,
		`outbid_tenant_devices_held{tenant="default",type="cpu"}`:              1,
		`outbid_node_state{node="w",state="up"}`:                               1,
		`outbid_leader`:                                                        1, `outbid_ready`: 1,
		`outbid_leader_term`:  1,
		`outbid_rounds_total`: 2, `outbid_leases_total{what="granted"}`: 5,
		`outbid_queue_seconds_count`: 5,
	} {
		if got, there := before.values[series]; !there || got < least {
			t.Errorf("%s is %v (there: %t), want %v", series, got, there, least)
		}
	}
	if _, err := one.DeleteSweep(t.Context(), &outbidv1.DeleteSweepRequest{Sweep: done}); err != nil {
		t.Fatal(err)
	}
	after := p.w.once("one", addressOne)
	if n := after.values[`outbid_sweeps{state="done"}`]; n != 0 {
		t.Fatalf("%v sweeps are done after the deletion", n)
	}
	standing := p.w.once("two", addressTwo)
	if leads, there := standing.values["outbid_leader"]; !there || leads != 0 || standing.values["process_start_time_seconds"] == 0 {
		t.Errorf("metrics of a standby:\n%s", standing.text)
	}

	one.kill()
	waitFile(t, two.proc, readyTwo)
	two.connect(readyTwo)
	if got := p.w.once("two", addressTwo).values; got["outbid_leader"] != 1 || got["outbid_leader_term"] <= before.values["outbid_leader_term"] {
		t.Errorf("the new leader: outbid_leader %v, outbid_leader_term %v", got["outbid_leader"], got["outbid_leader_term"])
	}
	two.waitSteps(lasting, two.sweep(lasting).GetSteps()+3)
	two.stop()
	again, addressAgain, readyAgain := p.start("one")
	waitFile(t, again.proc, readyAgain)
	again.connect(readyAgain)
	again.waitSteps(lasting, again.sweep(lasting).GetSteps()+3)
	last := p.w.once("one again", addressAgain)
	p.rulesNameMetrics(last)
	again.stop()
}

// rulesNameMetrics fails if an alert uses a metric that no server exported, or if promtool rejects a rule.
func (p *orchestratorPair) rulesNameMetrics(last sample) {
	p.t.Helper()
	text, err := os.ReadFile("../../deploy/prometheus/outbid.rules.yml")
	if err != nil {
		p.t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert string `yaml:"alert"`
				Expr  string `yaml:"expr"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		p.t.Fatal(err)
	}
	// These servers do not have a certificate, and their NATS does not have accounts.
	elsewhere := map[string]bool{"outbid_certificate_expires_timestamp_seconds": true, "outbid_nats_storage_limit_bytes": true}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			for _, name := range regexp.MustCompile(`\b(outbid|process)_[a-z_]+`).FindAllString(rule.Expr, -1) {
				if !p.w.saw(name) && !elsewhere[name] {
					p.t.Errorf("%s names %s, which nothing exports", rule.Alert, name)
				}
			}
		}
	}
	tool := os.Getenv("OUTBID_TEST_PROMTOOL")
	if tool == "" {
		p.t.Log("no promtool: what it says of the metrics is not known")
		return
	}
	check := exec.Command(tool, "check", "metrics")
	check.Stdin = strings.NewReader(last.text)
	if out, err := check.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		p.t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
