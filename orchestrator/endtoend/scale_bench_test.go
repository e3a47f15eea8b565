package endtoend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// putStub stores a blob and returns a workload that runs this binary as the training process.
func (s *server) putStub(env map[string]string) *outbidv1.SweepSpec_Function {
	s.t.Helper()
	blob := []byte("no function: the stub takes its place")
	stream, err := s.PutBlob(context.Background())
	if err == nil {
		err = stream.Send(&outbidv1.PutBlobRequest{Data: blob})
	}
	if err == nil {
		_, err = stream.CloseAndRecv()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	sum := sha256.Sum256(blob)
	return &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{Blob: hex.EncodeToString(sum[:]), Name: "stub", Python: self, Env: env}}
}

// memory returns the process's peak resident memory in MiB.
func (p *proc) memory() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	kb, err := strconv.Atoi(string(m[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return kb >> 10
}

// BenchmarkHundredThousandTrials runs a sweep of 100,000 trials with the built binary, kills the server (-9), and
// restarts it. It measures trials per second, peak memory of the server, and seconds until it answers again.
func BenchmarkHundredThousandTrials(b *testing.B) {
	const trials = 100_000
	for b.Loop() {
		dir := b.TempDir()
		s := serve(b, dir, "up", "--devices", "cpu:16")
		spec := job{name: "many", tuner: random(0), trials: trials}.bare()
		spec.Workload = s.putStub(map[string]string{"STUB_MODE": "once"})
		began := time.Now()
		id := s.submit(spec)
		tick := time.NewTicker(time.Second)
		for s.sweep(id).GetCounts().GetCompleted() < trials {
			<-tick.C
		}
		tick.Stop()
		b.ReportMetric(float64(trials)/time.Since(began).Seconds(), "trials/s")
		b.ReportMetric(float64(s.memory()), "MiB-peak")
		s.kill()
		began = time.Now()
		s = serve(b, dir, "up", "--devices", "cpu:16")
		b.ReportMetric(time.Since(began).Seconds(), "s-restart")
		if n := s.sweep(id).GetCounts().GetTotal(); n != trials {
			b.Fatalf("%d trials after the restart", n)
		}
		s.kill()
	}
}

// BenchmarkFirstReport measures the time from starting the binary to the first report of a first trial, a program.
func BenchmarkFirstReport(b *testing.B) {
	if _, err := binary(); err != nil { // building it does not count
		b.Fatal(err)
	}
	for b.Loop() {
		dir := b.TempDir()
		began := time.Now()
		s := serve(b, dir, "up", "--devices", "cpu:1")
		ready := time.Since(began)
		id := s.submit(job{name: "first", mode: "well", tuner: random(1), trials: 1, env: map[string]string{"PACE": "0s"}}.spec(b, ""))
		s.waitSteps(id, 1)
		b.ReportMetric(ready.Seconds(), "s-ready")
		b.ReportMetric(time.Since(began).Seconds(), "s-first-report")
		b.StopTimer()
		s.stop()
		b.StartTimer()
	}
}
