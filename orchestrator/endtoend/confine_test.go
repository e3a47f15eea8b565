package endtoend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// shell is a sweep of a shell script, which finds $DIR.
func shell(name, dir, text string, trials int32) *outbidv1.SweepSpec {
	spec := job{name: name, tuner: random(0), trials: trials}.bare()
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
		Command: []string{"sh", "-ec", text}, Env: map[string]string{"DIR": dir}, Grace: "2s",
	}}
	return spec
}

// reportOne is the end of a script that was well.
const reportOne = `; echo '{{"step":1,"loss":1}}' >> "$OUTBID_REPORT"`

// What an operator has in the environment stays with the server and its workers, unless it is passed on by name.
func TestTrialsSeeNothingOfTheServersEnvironmentThatTheyWereNotGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secrets := []string{"MINIO_ROOT_PASSWORD=planted1", "AWS_SECRET_ACCESS_KEY=planted2", "OUTBID_TOKEN=planted3", "HF_HOME=/models"}
	s := serveIn(t, dir, nil, secrets, "up", "--devices", "cpu:1", "--pass-env", "HF_*")
	s.mustDone(s.submit(shell("look", dir, `env > "$DIR/seen"`+reportOne, 1)))
	text, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	seen := string(text)
	if strings.Contains(seen, "planted") || !strings.Contains(seen, "HF_HOME=/models\n") || !strings.Contains(seen, "PATH=") {
		t.Errorf("the trial saw:\n%s", seen)
	}
	if out, code := tool(t, dir, "up", "--pass-env", "OUTBID_TOKEN"); code != 2 || strings.Count(strings.TrimSpace(out), "\n") != 0 ||
		!strings.Contains(out, "never passed on") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
