package pluginhost

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A program cannot gain privileges, has limits, and is killed before the server.
func TestAProgramIsConfined(t *testing.T) {
	t.Parallel()
	p, err := start(t, Bidder, self(t), asProgram)
	if err != nil {
		t.Fatal(err)
	}
	pid := int(p.group.Load())
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("it may gain privileges: %v", err)
	}
	for resource, most := range map[int]uint64{unix.RLIMIT_DATA: maxData, unix.RLIMIT_FSIZE: maxFile, unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_CORE: 0} {
		var l unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &l); err != nil || l.Max != most {
			t.Errorf("resource %d: %+v, %v; want %d", resource, l, err, most)
		}
	}
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err != nil || 20-raw != niceness {
		t.Errorf("its niceness is %d: %v", 20-raw, err)
	}
	if score, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/oom_score_adj"); err != nil || strings.TrimSpace(string(score)) != strconv.Itoa(oomScore) {
		t.Errorf("its score is %s: %v", score, err)
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil || strings.Contains(string(own), "NoNewPrivs:\t1") {
		t.Errorf("the server lost its own: %v", err)
	}
}
