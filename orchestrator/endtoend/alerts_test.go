package endtoend

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const rulesFile = "../../deploy/prometheus/outbid.rules.yml"

// scrapeInterval is the interval of deploy/prometheus/prometheus.yml.
const scrapeInterval = 15 * time.Second

// alertTest evaluates the alerts on scrapes of real servers. A fault lasts for moments in a test, but alerts wait for
// minutes. So each scrape is repeated as if the fault lasted, and promtool evaluates the rules with Prometheus's engine.
type alertTest struct {
	t       *testing.T
	targets map[string]string // the URL of a server by its name
	metrics *regexp.Regexp    // those that are read
	periods []alertPeriod
}

// alertPeriod is a time in which the servers do not change.
type alertPeriod struct {
	intervals int
	values    map[string]float64 // by series
	growth    map[string]float64 // per interval, of counters that continue to grow
	want      []string           // the alerts that fire in it
	either    string             // an alert that may fire in it
	checked   bool
}

// newAlertTest returns a test of the alerts on the servers at the given URLs.
func newAlertTest(t *testing.T, targets map[string]string) *alertTest {
	t.Helper()
	names := map[string]bool{"process_start_time_seconds": true, "outbid_stalled_seconds_total": true}
	for _, r := range readRules(t) {
		for _, name := range regexp.MustCompile(`\boutbid_[a-z_]+`).FindAllString(r.Expr, -1) {
			names[name] = true
		}
	}
	all := strings.Join(slices.Sorted(maps.Keys(names)), "|")
	return &alertTest{t: t, targets: targets, metrics: regexp.MustCompile(`^(` + all + `)(\{|$)`)}
}

// alertRule is a rule of outbid.rules.yml.
type alertRule struct {
	Alert string `yaml:"alert"`
	Expr  string `yaml:"expr"`
}

func readRules(t *testing.T) []alertRule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []alertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []alertRule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// passes scrapes the servers, whose state lasts for a time without a check of the alerts.
func (a *alertTest) passes(d time.Duration) {
	a.t.Helper()
	a.periods = append(a.periods, alertPeriod{intervals: int(d / scrapeInterval), values: a.scrape()})
}

const (
	// lasting is longer than any alert waits or looks back.
	lasting = 75 * time.Minute
	// settling is how long alerts may still fire for an earlier state.
	settling = 6 * time.Minute
)

// fires scrapes the servers, whose state then lasts, and expects exactly these alerts to fire meanwhile.
func (a *alertTest) fires(alerts ...string) {
	a.t.Helper()
	a.periods = append(a.periods, alertPeriod{intervals: int(lasting / scrapeInterval), values: a.scrape(), want: alerts, checked: true})
}

// firesIfRepeated is fires where the counters continue to grow as much in each interval as since the last scrape.
func (a *alertTest) firesIfRepeated(alerts ...string) {
	a.t.Helper()
	before := a.periods[len(a.periods)-1].values
	a.fires(alerts...)
	p := &a.periods[len(a.periods)-1]
	p.growth = map[string]float64{}
	for series, value := range p.values {
		if name, _, _ := strings.Cut(series, "{"); strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_total") {
			p.growth[series] = value - before[series]
		}
	}
}

// mayFire permits another alert in the last period.
func (a *alertTest) mayFire(alert string) { a.periods[len(a.periods)-1].either = alert }

// scrape reads the metrics of all servers now. A server that does not answer has only the series up, like in Prometheus.
func (a *alertTest) scrape() map[string]float64 {
	a.t.Helper()
	values := map[string]float64{}
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // the test made the certificate
	}}
	for instance, url := range a.targets {
		labels := fmt.Sprintf(`instance=%q,job="outbid"`, instance)
		up := "up{" + labels + "}"
		values[up] = 0
		resp, err := client.Get(url + "/metrics")
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			continue
		}
		values[up] = 1
		for line := range strings.Lines(string(body)) {
			at := strings.LastIndexByte(line, ' ')
			if at < 0 || !a.metrics.MatchString(line[:at]) {
				continue
			}
			value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
			if err != nil {
				a.t.Fatalf("%q: %v", line, err)
			}
			series, labelled := strings.CutSuffix(line[:at], "}")
			if labelled {
				series += "," + labels + "}"
			} else {
				series += "{" + labels + "}"
			}
			values[series] = value
		}
	}
	return values
}

// check evaluates the alerts on everything that was scraped.
func (a *alertTest) check() {
	a.t.Helper()
	tool := os.Getenv("OUTBID_TEST_PROMTOOL")
	if tool == "" {
		a.t.Log("no promtool: the alerts are not evaluated")
		return
	}
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{
		"rule_files": []string{rules}, "evaluation_interval": scrapeInterval.String(), "tests": []any{map[string]any{
			"interval": scrapeInterval.String(), "start_timestamp": time.Now().Unix(),
			"input_series": a.input(), "promql_expr_test": a.expectations(),
		}},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	path := filepath.Join(a.t.TempDir(), "alerts.test.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if out, err := exec.Command(tool, "test", "rules", path).CombinedOutput(); err != nil {
		a.t.Errorf("promtool: %v\n%s", err, out)
	}
}

// input returns the series in promtool's notation.
func (a *alertTest) input() []map[string]string {
	names := map[string]bool{}
	for _, p := range a.periods {
		for series := range p.values {
			names[series] = true
		}
	}
	var all []map[string]string
	for _, series := range slices.Sorted(maps.Keys(names)) {
		var values []string
		present := false
		for _, p := range a.periods {
			value, is := p.values[series]
			switch {
			case is:
				values = append(values, fmt.Sprintf("%s+%sx%d", plain(value), plain(p.growth[series]), p.intervals-1))
			case present:
				values = append(values, "stale", fmt.Sprintf("_x%d", p.intervals-1))
			default:
				values = append(values, fmt.Sprintf("_x%d", p.intervals))
			}
			present = is
		}
		all = append(all, map[string]string{"series": series, "values": strings.Join(values, " ")})
	}
	return all
}

// plain formats a number without an exponent, which promtool does not accept.
func plain(value float64) string {
	return strconv.FormatFloat(value, 'f', -1, 64)
}

// expectations returns which alerts fire at any time of each period after it settled.
func (a *alertTest) expectations() []map[string]any {
	var all []map[string]any
	end := 0
	for _, p := range a.periods {
		end += p.intervals
		if !p.checked {
			continue
		}
		samples := []map[string]any{}
		for _, alert := range p.want {
			samples = append(samples, map[string]any{"labels": fmt.Sprintf("{alertname=%q}", alert), "value": 1})
		}
		at, during := time.Duration(end-1)*scrapeInterval, time.Duration(p.intervals-1)*scrapeInterval-settling
		all = append(all, map[string]any{
			"expr":      fmt.Sprintf(`group by (alertname) (last_over_time(ALERTS{alertstate="firing", alertname!=%q}[%ds]))`, p.either, int(during.Seconds())),
			"eval_time": at.String(), "exp_samples": samples,
		})
	}
	return all
}

// TestEveryAlertHasItsFault checks that a test causes the fault of each alert in a real cluster.
func TestEveryAlertHasItsFault(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	fired := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`\.fires(?:IfRepeated)?\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
			for _, alert := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(call[1], -1) {
				fired[alert[1]] = true
			}
		}
	}
	for _, r := range readRules(t) {
		if !fired[r.Alert] {
			t.Errorf("no test causes the fault of %s", r.Alert)
		}
		delete(fired, r.Alert)
	}
	for alert := range fired {
		t.Errorf("a test expects %s, which is not an alert", alert)
	}
}
