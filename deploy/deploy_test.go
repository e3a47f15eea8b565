package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// compose is the part of a compose file that the tests check.
type compose struct {
	Services map[string]struct {
		Image       string         `yaml:"image"`
		Build       map[string]any `yaml:"build"`
		Ports       []string       `yaml:"ports"`
		Volumes     []string       `yaml:"volumes"`
		HealthCheck map[string]any `yaml:"healthcheck"`
		Restart     string         `yaml:"restart"`
	} `yaml:"services"`
	Volumes map[string]any `yaml:"volumes"`
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestComposeListensOnLoopbackAndIsWatched(t *testing.T) {
	t.Parallel()
	var c compose
	readYAML(t, "compose/compose.yaml", &c)
	for _, name := range []string{"nats", "minio", "serve", "worker"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("there is no service %q", name)
		}
	}
	for name, s := range c.Services {
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %q beyond loopback", name, port)
			}
		}
		if s.Restart == "no" {
			continue // It sets something up and ends.
		}
		if s.Image == "" && s.Build == nil {
			t.Errorf("%s has neither image nor build", name)
		}
		if s.HealthCheck == nil && name != "worker" {
			t.Errorf("%s has no health check", name)
		}
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if _, ok := c.Volumes[from]; !ok && !strings.HasPrefix(from, ".") && !strings.HasPrefix(from, "$") {
				t.Errorf("%s mounts %q, which is neither a named volume nor a file in its directory", name, from)
			}
			if strings.HasPrefix(from, "../") {
				if _, err := os.Stat(filepath.Join("compose", from)); err != nil {
					t.Errorf("%s mounts %s: %v", name, from, err)
				}
			}
		}
	}
}

// rayPod is the part of a KubeRay pod that the tests check.
type rayPod struct {
	RayStartParams map[string]string `yaml:"rayStartParams"`
	Template       struct {
		Spec struct {
			TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
			Containers                    []struct {
				Image     string                       `yaml:"image"`
				Resources map[string]map[string]string `yaml:"resources"`
			} `yaml:"containers"`
		} `yaml:"spec"`
	} `yaml:"template"`
}

func TestKubeRayTrainsNothingBesideTheServer(t *testing.T) {
	t.Parallel()
	var job struct {
		Kind string
		Spec struct {
			RayClusterSpec struct {
				RayVersion              string   `yaml:"rayVersion"`
				EnableInTreeAutoscaling bool     `yaml:"enableInTreeAutoscaling"`
				HeadGroupSpec           rayPod   `yaml:"headGroupSpec"`
				WorkerGroupSpecs        []rayPod `yaml:"workerGroupSpecs"`
			} `yaml:"rayClusterSpec"`
		}
	}
	readYAML(t, "kuberay/rayjob.yaml", &job)
	cluster := job.Spec.RayClusterSpec
	tested, err := os.ReadFile("../.ci/integrations.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(tested), "]=="+cluster.RayVersion+"\n") {
		t.Errorf("Ray %s is not the version that the tests run with", cluster.RayVersion)
	}
	if cluster.HeadGroupSpec.RayStartParams["num-cpus"] != "0" {
		t.Error("the head offers CPUs: trials would run on the server's machine")
	}
	if !cluster.EnableInTreeAutoscaling || len(cluster.WorkerGroupSpecs) == 0 {
		t.Error("no nodes come and go")
	}
	for _, pod := range append(cluster.WorkerGroupSpecs, cluster.HeadGroupSpec) {
		for _, c := range pod.Template.Spec.Containers {
			if !strings.HasSuffix(c.Image, ":"+cluster.RayVersion) {
				t.Errorf("image %s is not of Ray %s", c.Image, cluster.RayVersion)
			}
			if len(c.Resources["limits"]) == 0 || !maps.Equal(c.Resources["limits"], c.Resources["requests"]) {
				t.Errorf("image %s: Ray counts limits, and they are not what is requested", c.Image)
			}
		}
	}
	for _, pod := range cluster.WorkerGroupSpecs {
		if pod.Template.Spec.TerminationGracePeriodSeconds < 60 {
			t.Error("a node that leaves has no time to save")
		}
	}
}

func TestUnitsAreWhatSystemdUnderstands(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) < 4 {
		t.Fatalf("units: %v, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "Restart=", "User=", "WantedBy=multi-user.target",
		} {
			if !strings.Contains(string(text), "\n"+want) {
				t.Errorf("%s lacks %s", unit, want)
			}
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze")
	}
	dir := t.TempDir()
	var copies []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		// The programs and users need not exist on this machine.
		checked := regexp.MustCompile(`(?m)^(ExecStart=)\S+`).ReplaceAllString(string(text), "${1}/bin/true")
		to := filepath.Join(dir, strings.Replace(filepath.Base(unit), "@", "@1", 1))
		if err := os.WriteFile(to, []byte(checked), 0o600); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, to)
	}
	out, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, copies...)...).CombinedOutput()
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.Contains(line, dir) || strings.Contains(line, "Unknown") || strings.Contains(line, "Failed to parse") {
			t.Errorf("systemd-analyze: %s", line)
		}
	}
	t.Logf("systemd-analyze: %v\n%s", err, out)
}
