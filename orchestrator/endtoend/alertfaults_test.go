package endtoend

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestAlertsOfNodesAndTrials causes faults of nodes and trials, and restarts of the server.
func TestAlertsOfNodesAndTrials(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := newAlertTest(t, map[string]string{"a": c.Info.API})
	c.worker("w", "cpu:2", "")
	poll(t, "the worker", func() bool { return len(c.nodes()) == 1 })
	a.fires()

	waits := c.submit(job{name: "waits", mode: "well", tuner: random(5), trials: 1, change: func(sp *outbidv1.SweepSpec) {
		sp.Resources = &outbidv1.Resources{Types: []string{"v100"}}
	}}.spec(t, c.locks))
	a.fires("OutbidTrialsWaitWhileDevicesAreFree")
	if _, err := c.ControlSweep(t.Context(), &outbidv1.ControlSweepRequest{
		Sweep: waits, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP,
	}); err != nil {
		t.Fatal(err)
	}
	c.wait(waits)

	failed := c.wait(c.submit(job{name: "fails", mode: "always", tuner: random(5), trials: 11, change: func(sp *outbidv1.SweepSpec) {
		sp.MaxRestarts = new(int32(0))
	}}.spec(t, c.locks)))
	if n := failed.GetCounts().GetFailed(); n != 11 {
		t.Fatalf("%d trials failed", n)
	}
	a.fires("OutbidTrialsFail")

	start(t, c.dir, "worker", "--nats", c.Info.NATS, "--keys", c.Info.Keys, "--name", "full", "--devices", "cpu:1",
		"--dir", filepath.Join(c.dir, "full"), "--disk-margin", "1PiB")
	poll(t, "the fault of the full node", func() bool {
		nodes := c.nodes()
		return len(nodes) == 2 && len(nodes[0].GetFaults()) == 1
	})
	a.fires("OutbidNodeFaulty")
	c.workers["w"].kill()
	poll(t, "the lost node", func() bool { return c.nodes()[1].GetState() == outbidv1.NodeState_NODE_STATE_LOST })
	a.fires("OutbidNodeFaulty", "OutbidNodesAway")
	for range 4 {
		c.kill()
		c.restart()
		a.passes(time.Minute)
	}
	a.fires("OutbidRestarts", "OutbidNodeFaulty", "OutbidNodesAway")
	a.check()
}

// writeCertificate writes a certificate of this machine, and its key, to DIR/cert.pem and DIR/key.pem.
func writeCertificate(t *testing.T, dir string, life time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := &x509.Certificate{
		SerialNumber: big.NewInt(int64(life)), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
	}
	cert, err := x509.CreateCertificate(rand.Reader, made, made, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"key.pem": {Type: "PRIVATE KEY", Bytes: secret}, "cert.pem": {Type: "CERTIFICATE", Bytes: cert}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// value returns the newest value of a metric of a server.
func (a *alertTest) value(instance, metric string) float64 {
	a.t.Helper()
	for series, value := range a.scrape() {
		if strings.HasPrefix(series, metric+"{") && strings.Contains(series, strconv.Quote(instance)) {
			return value
		}
	}
	return -1
}

// alertServers are a leader, a standby and their NATS, in processes.
type alertServers struct {
	*alertTest
	one       *server
	two, nats *proc
	startTwo  func() *proc
	certs     string
	// collector reads the audit file.
	collector *os.File
	calls     sync.WaitGroup
	spec      *outbidv1.SweepSpec
}

func newAlertServers(t *testing.T) *alertServers {
	dir, certs := t.TempDir(), t.TempDir()
	writeCertificate(t, certs, 90*24*time.Hour)
	s := &alertServers{certs: certs, spec: job{name: "calls", mode: "well", tuner: random(1000), trials: 1}.spec(t, t.TempDir())}
	var url string
	s.nats, url = natsProcess(t, dir, filepath.Join(dir, "nats"))
	pipe := filepath.Join(dir, "audit")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.collector, err = os.OpenFile(pipe, os.O_RDWR, 0); err != nil { // a reader alone would wait for the writer
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.collector.Close() })
	s.one = serveData(t, dir, "one", "serve", "--nats", url, "--lease", "60s", "--audit-log", pipe, "--data", filepath.Join(dir, "one"))
	address := freeAddress(t)
	s.startTwo = func() *proc {
		return start(t, dir, "serve", "--nats", url, "--standby", "--data", filepath.Join(dir, "two"), "--keys", s.one.Info.Keys,
			"--api", address, "--tls-cert", filepath.Join(certs, "cert.pem"), "--tls-key", filepath.Join(certs, "key.pem"))
	}
	s.two = s.startTwo()
	s.two.until("standing by")
	s.alertTest = newAlertTest(t, map[string]string{"one": s.one.Info.API, "two": "https://" + address})
	return s
}

// submit submits a sweep n times; an empty one is refused, and recorded in the audit.
func (s *alertServers) submit(n int, spec *outbidv1.SweepSpec) {
	for range n {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, _ = s.one.SubmitSweep(ctx, &outbidv1.SubmitSweepRequest{Spec: spec})
		cancel()
	}
}

// hangWhileTwoRestores starts the second server, and stops NATS when that server leads and has not restored its state.
func (s *alertServers) hangWhileTwoRestores() {
	for {
		s.two = s.startTwo()
		poll(s.t, "a leader", func() bool { return s.value("two", "outbid_leader") == 1 })
		s.nats.pause()
		if s.value("two", "outbid_ready") == 0 {
			return
		}
		s.two.kill()
		s.nats.resume()
	}
}

// TestAlertsOfServersAndNATS stops NATS while a leader and a standby run, and ends the servers.
func TestAlertsOfServersAndNATS(t *testing.T) {
	t.Parallel()
	expectErrors(t, "the audit's file cannot be written")
	s := newAlertServers(t)
	s.submit(1, s.spec)
	s.fires()

	s.nats.pause()
	s.calls.Go(func() { s.submit(1, s.spec) })
	poll(t, "a call that takes a second", func() bool { return s.value("one", "outbid_step_age_seconds") > 1 })
	s.nats.resume()
	s.calls.Wait()
	s.firesIfRepeated("OutbidApiSlow")
	doctorFinds(t, "it starts, or is a standby", "--server", s.targets["two"], "--ca", filepath.Join(s.certs, "cert.pem"))
	poll(t, "the stall to be counted", func() bool { return s.value("one", "outbid_stalled_seconds_total") > 1 })
	writeCertificate(t, s.certs, 10*24*time.Hour)
	poll(t, "the new certificate", func() bool {
		return s.value("two", "outbid_certificate_expires_timestamp_seconds") < float64(time.Now().Add(14*24*time.Hour).Unix())
	})
	s.fires("OutbidCertificateEnds")
	if err := s.collector.Close(); err != nil {
		t.Fatal(err)
	}
	s.submit(1, nil)
	poll(t, "a record that the file lacks", func() bool { return s.value("one", "outbid_audit_file_failures_total") > 0 })
	s.fires("OutbidCertificateEnds", "OutbidAuditFileFails")
	doctorFinds(t, "the file of `--audit-log` cannot be written", "--server", s.one.Info.API)

	s.nats.pause()
	s.calls.Go(func() { s.submit(1, s.spec) })
	poll(t, "an append that lasts", func() bool { return s.value("one", "outbid_step_age_seconds") > 5 })
	s.fires("OutbidCertificateEnds", "OutbidLedgerStandsStill")
	for range 20 { // more records than fit
		s.calls.Go(func() { s.submit(501, nil) })
	}
	poll(t, "lost records", func() bool { return s.value("one", "outbid_audit_lost_total") > 0 })
	s.fires("OutbidCertificateEnds", "OutbidLedgerStandsStill", "OutbidAuditWaits", "OutbidAuditLost")
	out, code := tool(t, t.TempDir(), "doctor", "-o", "json", "--server", s.one.Info.API)
	mustReport(t, "NATS hangs or is cut off", out, code)
	mustReport(t, "NATS cannot store the audit", out, code)
	s.one.kill()
	s.calls.Wait()
	s.fires("OutbidCertificateEnds", "OutbidInstanceDown", "OutbidNoLeader")
	s.two.kill()
	s.nats.resume()
	s.hangWhileTwoRestores()
	s.fires("OutbidCertificateEnds", "OutbidInstanceDown", "OutbidNotReady")
	s.mayFire("OutbidAuditWaits") // it may have begun to store that it leads
	s.two.kill()
	s.fires("OutbidDown")
	s.check()
}

// TestAlertOfADamagedLedger damages a batch that a start does not read.
func TestAlertOfADamagedLedger(t *testing.T) {
	t.Parallel()
	expectErrors(t, "the ledger is damaged", "a file of the history of reports could not be rebuilt")
	dir := t.TempDir()
	s := serve(t, dir, "serve", "--nats-listen", "127.0.0.1:0")
	c := s.external("kept", 1)
	if err := c.tellReports(1000, 50); err != nil { // one batch at a time: the file's middle is not in the last, which a start needs
		t.Fatal(err)
	}
	s.stop()
	blocks, err := filepath.Glob(filepath.Join(dir, "data", "nats", "store", "jetstream", "*", "streams", "OUTBID_LEDGER", "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("blocks: %v, %v", blocks, err)
	}
	flipBit(t, blocks[0])
	flipBit(t, filepath.Join(dir, "data", "history", c.sweep+".reports"))
	s = serve(t, dir, "serve", "--nats-listen", "127.0.0.1:0")
	a := newAlertTest(t, map[string]string{"a": s.Info.API})
	a.fires()
	out, code := tool(t, dir, "doctor", "-o", "json", "--server", s.Info.API)
	mustReport(t, "a batch cannot be read", out, code)
	mustReport(t, "reports are damaged, and the ledger lacks them", out, code)
	a.fires("OutbidLedgerDamaged")
	a.check()
}
