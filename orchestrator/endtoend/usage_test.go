package endtoend

import (
	"context"
	"encoding/csv"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// leaseSeconds returns the device-seconds of each sweep's leases according to the ledger: those of LeaseEnded, which the
// server computed, and the same from the times of the batches.
func (s *server) leaseSeconds() (recorded, timed map[string]float64) {
	s.t.Helper()
	recorded, timed = map[string]float64{}, map[string]float64{}
	type grant struct {
		at      time.Time
		devices int
	}
	leases := map[uint64]grant{}
	r, err := s.ReadLedger(context.Background(), &outbidv1.ReadLedgerRequest{})
	err = drain(r, err, func(m *outbidv1.ReadLedgerResponse) error {
		var all outbidv1.Events
		if err := proto.Unmarshal(m.GetBatch().GetEvents(), &all); err != nil {
			return err
		}
		at := m.GetBatch().GetTime().AsTime()
		for _, e := range all.GetEvents() {
			if g := e.GetLeaseGranted(); g != nil {
				n := 0
				for _, p := range g.GetPlaces() {
					n += len(p.GetDevices())
				}
				leases[g.GetLeaseId()] = grant{at, n}
			}
			if ended := e.GetLeaseEnded(); ended != nil {
				g := leases[ended.GetLeaseId()]
				recorded[ended.GetSweep()] += ended.GetDeviceSeconds()
				timed[ended.GetSweep()] += at.Sub(g.at).Seconds() * float64(g.devices)
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return recorded, timed
}

// usageHours returns the device-hours of each value of label run, as `outbid usage` prints them.
func (s *server) usageHours(dir string) map[string]float64 {
	s.t.Helper()
	p := start(s.t, dir, "usage", "--server", s.Info.API, "--by", "label.run,user,type,tenant", "-o", "csv")
	<-p.ended
	text, _ := p.out.text()
	all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(all) == 0 {
		s.t.Fatalf("%v: %s", err, text)
	}
	hours := map[string]float64{}
	for _, row := range all[1:] {
		seconds, err := strconv.ParseFloat(row[4], 64)
		if err != nil || row[2] != "cpu" || row[3] != "default" {
			s.t.Fatalf("row %v: %v", row, err)
		}
		hours[row[0]] += seconds
	}
	return hours
}

// TestUsageOfRealSweepsEqualsTheLedger runs two sweeps, and compares what `outbid usage` prints with the leases of the
// ledger, with the metric, and with the answer after a restart and the deletion of one sweep.
func TestUsageOfRealSweepsEqualsTheLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir, "up", "--devices", "cpu:2")
	run := func(name string) string {
		spec := shell(name, dir, "sleep .2"+reportOne, 4)
		spec.Labels = map[string]string{"run": name}
		return s.submit(spec)
	}
	one, two := run("one"), run("two")
	s.wait(one)
	s.wait(two)
	check := func(when string) {
		recorded, timed := s.leaseSeconds()
		printed := s.usageHours(dir)
		for name, id := range map[string]string{"one": one, "two": two} {
			if timed[id] <= 0 || math.Abs(printed[name]-timed[id]) > 1e-6 || math.Abs(printed[name]-recorded[id]) > 1e-6 {
				t.Errorf("%s: usage prints %v s for %s, the ledger has %v s by its times and %v s in its events", when, printed[name], id, timed[id], recorded[id])
			}
		}
		m, err := scrapeMetrics(strings.TrimPrefix(s.Info.API, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if n := m.values[`outbid_tenant_device_seconds_total{tenant="default",type="cpu"}`]; math.Abs(n-printed["one"]-printed["two"]) > 1e-3 {
			t.Errorf("%s: the metric is %v, usage prints %v", when, n, printed)
		}
	}
	check("at first")
	if _, err := s.DeleteSweep(context.Background(), &outbidv1.DeleteSweepRequest{Sweep: one}); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s = serve(t, dir, "up", "--devices", "cpu:2")
	check("after a deletion and a restart")
}
