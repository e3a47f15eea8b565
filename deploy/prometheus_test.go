package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// promtool finds Prometheus's tool, or skips the test.
func promtool(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("OUTBID_TEST_PROMTOOL"); path != "" {
		return path
	}
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: OUTBID_TEST_PROMTOOL does not name one, as make test-services does, and there is none in PATH")
	}
	return path
}

// TestAlerts runs the alerts' tests, such as a deleted sweep, a restarted server and a takeover.
func TestAlerts(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"}, {"check", "rules", "outbid.rules.yml"}, {"test", "rules", "outbid.rules.test.yml"},
	} {
		cmd := exec.Command(tool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// alertRule is a rule of outbid.rules.yml.
type alertRule struct {
	Alert       string            `yaml:"alert"`
	Annotations map[string]string `yaml:"annotations"`
}

func readRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	readYAML(t, "prometheus/outbid.rules.yml", &file)
	var all []alertRule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// TestEachAlertHasARunbook compares the alerts with the headings of docs/operate/alerts.md.
func TestEachAlertHasARunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operate/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, section := range regexp.MustCompile(`(?m)^### (\w+)\n\n(\S)`).FindAllStringSubmatch(string(text), -1) {
		described[section[1]] = section[2] != "#"
	}
	for _, rule := range readRules(t) {
		if !described[rule.Alert] {
			t.Errorf("docs/operate/alerts.md does not say what to do about %s", rule.Alert)
		}
		delete(described, rule.Alert)
	}
	for alert := range described {
		t.Errorf("docs/operate/alerts.md describes %s, which is not an alert", alert)
	}
}

// TestEachAlertIsTested checks that each alert has a test in which it fires, and one in which it does not.
func TestEachAlertIsTested(t *testing.T) {
	t.Parallel()
	rules := readRules(t)
	var tests struct {
		Tests []struct {
			Rules []struct {
				Alert  string `yaml:"alertname"`
				Expect []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	readYAML(t, "prometheus/outbid.rules.test.yml", &tests)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, rule := range test.Rules {
			fires[rule.Alert] = fires[rule.Alert] || len(rule.Expect) > 0
			quiet[rule.Alert] = quiet[rule.Alert] || len(rule.Expect) == 0
		}
	}
	for _, rule := range rules {
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", rule.Alert)
		}
		if !fires[rule.Alert] || !quiet[rule.Alert] {
			t.Errorf("%s: a test in which it fires: %t; one in which it does not: %t", rule.Alert, fires[rule.Alert], quiet[rule.Alert])
		}
	}
}
