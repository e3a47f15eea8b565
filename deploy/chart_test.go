package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// helm finds helm, or skips the test.
func helm(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("OUTBID_TEST_HELM"); path != "" {
		return path
	}
	path, err := exec.LookPath("helm")
	if err != nil {
		t.Skip("no helm: OUTBID_TEST_HELM does not name one, as make test-chart does, and there is none in PATH")
	}
	return path
}

// object is the part of a Kubernetes object that the tests check.
type object struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Data map[string]string `yaml:"data"`
	Spec struct {
		PodSelector selector `yaml:"podSelector"`
		Selector    selector `yaml:"selector"`
		Template    struct {
			Metadata struct {
				Labels map[string]string `yaml:"labels"`
			} `yaml:"metadata"`
			Spec podSpec `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

// matches reports whether a selector with labels selects an object with other labels.
func (s selector) matches(labels map[string]string) bool {
	for name, value := range s.MatchLabels {
		if labels[name] != value {
			return false
		}
	}
	return len(s.MatchLabels) > 0
}

type podSpec struct {
	Automount   *bool `yaml:"automountServiceAccountToken"`
	Grace       int   `yaml:"terminationGracePeriodSeconds"`
	HostNetwork bool  `yaml:"hostNetwork"`
	Security    struct {
		NonRoot bool           `yaml:"runAsNonRoot"`
		User    int            `yaml:"runAsUser"`
		Seccomp map[string]any `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []struct {
		Name      string         `yaml:"name"`
		Image     string         `yaml:"image"`
		Args      []string       `yaml:"args"`
		Resources map[string]any `yaml:"resources"`
		Ready     map[string]any `yaml:"readinessProbe"`
		Mounts    []struct {
			Path    string `yaml:"mountPath"`
			SubPath string `yaml:"subPath"`
		} `yaml:"volumeMounts"`
		Security struct {
			Escalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnly   bool  `yaml:"readOnlyRootFilesystem"`
			NonRoot    bool  `yaml:"runAsNonRoot"`
			Caps       struct {
				Add  []string `yaml:"add"`
				Drop []string `yaml:"drop"`
			} `yaml:"capabilities"`
		} `yaml:"securityContext"`
	} `yaml:"containers"`
}

// withStore is the value that has no default.
const withStore = "store.url=s3://outbid/checkpoints"

// render returns the objects of the chart with values.
func render(t *testing.T, values ...string) []object {
	t.Helper()
	args := []string{"template", "outbid", "chart", "--namespace", "ml", "--set", withStore}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	out, err := exec.CommandContext(t.Context(), helm(t), args...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("helm %v: %v\n%s", args, err, failed.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var list []object
	for d := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if o.Kind != "" {
			list = append(list, o)
		}
	}
}

func TestChartIsLinted(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), helm(t), "lint", "--strict", "chart", "--set", withStore).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The chart installs nothing that belongs to the whole cluster.
func TestChartStaysInItsNamespace(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"ServiceAccount", "Role", "RoleBinding", "Service", "StatefulSet", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor",
	}
	seen := map[string]bool{}
	for _, o := range render(t, "serviceMonitor.enabled=true") {
		seen[o.Kind] = true
		if !slices.Contains(allowed, o.Kind) {
			t.Errorf("%s %s belongs to the cluster, or is not expected", o.Kind, o.Metadata.Name)
		}
	}
	for _, kind := range allowed {
		if !seen[kind] {
			t.Errorf("there is no %s", kind)
		}
	}
}

// Containers have no privileges, except that workers that isolate trials have what this needs.
func TestChartsPodsHaveNoPrivileges(t *testing.T) {
	t.Parallel()
	objects := render(t, "workers.open.isolateTrials=false", "workers.open.drainTimeout=300")
	found := 0
	for _, o := range objects {
		if o.Kind != "StatefulSet" {
			continue
		}
		found++
		name, pod := o.Metadata.Name, o.Spec.Template.Spec
		isolated := name == "outbid-worker-cpu"
		if pod.HostNetwork || pod.Security.Seccomp["type"] != "RuntimeDefault" || pod.Security.NonRoot == isolated || (pod.Security.User == 0) != isolated {
			t.Errorf("%s: %+v", name, pod.Security)
		}
		if pod.Automount == nil || *pod.Automount != (name == "outbid-server") {
			t.Errorf("%s: whether it gets a token of the API server: %v", name, pod.Automount)
		}
		for _, c := range pod.Containers {
			s := c.Security
			if s.Escalation == nil || *s.Escalation || !s.ReadOnly || s.NonRoot == isolated || !slices.Equal(s.Caps.Drop, []string{"ALL"}) {
				t.Errorf("%s: %+v", name, s)
			}
			if want := []string{"SETUID", "SETGID", "CHOWN", "KILL"}; isolated && !slices.Equal(s.Caps.Add, want) || !isolated && len(s.Caps.Add) > 0 {
				t.Errorf("%s has the capabilities %v", name, s.Caps.Add)
			}
			if !strings.Contains(name, "worker") && (c.Ready == nil || c.Resources["requests"] == nil) {
				t.Errorf("%s has no probe or no requests", name)
			}
		}
		covered := map[string]bool{}
		for _, other := range objects {
			labels := o.Spec.Template.Metadata.Labels
			if other.Spec.PodSelector.matches(labels) || other.Kind == "PodDisruptionBudget" && other.Spec.Selector.matches(labels) {
				covered[other.Kind] = true
			}
		}
		if !covered["NetworkPolicy"] || !covered["PodDisruptionBudget"] {
			t.Errorf("%s is covered by %v alone", name, covered)
		}
		if want := map[string]int{"outbid-worker-cpu": 170, "outbid-worker-open": 320}[name]; want > 0 && pod.Grace != want {
			t.Errorf("%s has %d s to stop, want %d", name, pod.Grace, want)
		}
	}
	if found != 4 {
		t.Errorf("%d StatefulSets", found)
	}
}

// Every flag in the chart is one of the command line.
func TestChartsFlagsExist(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile("../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	global := []string{"--ca", "--log-format", "--server"}
	for _, o := range render(t, "workers.open.isolateTrials=false") {
		for _, c := range o.Spec.Template.Spec.Containers {
			if c.Name == "nats" {
				continue
			}
			_, section, _ := strings.Cut(string(reference), "\n### outbid "+c.Args[0]+"\n")
			section, _, _ = strings.Cut(section, "\n### ")
			for _, arg := range c.Args[1:] {
				flag, _, _ := strings.Cut(arg, "=")
				if !slices.Contains(global, flag) && !regexp.MustCompile("`"+flag+"[ `]").MatchString(section) {
					t.Errorf("outbid %s has no flag %s", c.Args[0], flag)
				}
			}
		}
	}
}

// Without values, containers have the image that make image builds.
func TestChartsImageIsTheBuiltOne(t *testing.T) {
	t.Parallel()
	version, err := os.ReadFile("../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	want := "outbid:" + strings.TrimSpace(string(version))
	for _, o := range render(t) {
		for _, c := range o.Spec.Template.Spec.Containers {
			if c.Name != "nats" && c.Image != want {
				t.Errorf("%s has the image %s, want %s (make gen)", o.Metadata.Name, c.Image, want)
			}
		}
	}
}

// The kubelet brings a changed Secret into a directory of a running container, and never into a file that is mounted alone.
func TestChartsSecretsCanChange(t *testing.T) {
	t.Parallel()
	keys := 0
	for _, o := range render(t) {
		for _, c := range o.Spec.Template.Spec.Containers {
			for _, m := range c.Mounts {
				if m.SubPath != "" {
					t.Errorf("%s of %s does not change with its Secret: it is mounted alone (subPath)", m.Path, o.Metadata.Name)
				}
				if strings.HasPrefix(m.Path, "/keys") {
					keys++
				}
			}
		}
	}
	if keys != 1 {
		t.Errorf("%d mounts of the cluster's keys", keys)
	}
}

// NATS has the settings of deploy/nats that must not be lost, and as many routes as servers.
func TestChartsNATSIsConfigured(t *testing.T) {
	t.Parallel()
	for replicas, routes := range map[string]int{"1": 0, "3": 3} {
		conf := ""
		for _, o := range render(t, "nats.replicas="+replicas) {
			conf += o.Data["nats.conf"]
		}
		for _, want := range []string{"sync_interval: always", "max_payload: 8MB", `include "auth.conf"`, `ping_interval: "3s"`, "ping_max: 2"} {
			if !strings.Contains(conf, want) {
				t.Errorf("nats.conf of %s has no %s", replicas, want)
			}
		}
		if got := strings.Count(conf, "nats-route://"); got != routes {
			t.Errorf("nats.conf of %s has %d routes", replicas, got)
		}
	}
}

// The schema refuses bad values with a message that names them.
func TestChartsSchemaRefuses(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"store.url=/data":               "/store/url",
		"server.replicas=0":             "/server/replicas",
		"nats.replicas=2":               "/nats/replicas",
		"sever.replicas=2":              "sever",
		"workers.cpu.device=gpu":        "device",
		"workers.Cpu.replicas=1":        "Cpu",
		"workers.cpu.drainTimeout=2m":   "/workers/cpu/drainTimeout",
		"secrets.tls=Not A Name":        "/secrets/tls",
		"imagePullPolicy=Sometimes":     "/imagePullPolicy",
		"workers.cpu.isolateTrials=yes": "/workers/cpu/isolateTrials",
	} {
		out, err := exec.CommandContext(t.Context(), helm(t), "template", "outbid", "chart", "--set", withStore, "--set", value).CombinedOutput()
		if err == nil || !strings.Contains(strings.ReplaceAll(string(out), ".", "/"), want) {
			t.Errorf("%s: %v, want a message with %s:\n%s", value, err, want, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), helm(t), "template", "outbid", "chart").CombinedOutput(); err == nil {
		t.Errorf("a chart without a store is accepted:\n%s", out)
	}
}
