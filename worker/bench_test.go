package worker

import (
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// BenchmarkReports measures how many reports a second go from 100 training processes over their sockets, one worker
// and NATS to an orchestrator that only acknowledges them. Each process sends one report per message, which is the
// worst case.
func BenchmarkReports(b *testing.B) {
	const trials = 100
	s := newSite(b)
	s.work(b, "", func(c *Config) { c.Machine = machine(trials) })
	o := s.orch
	each := int64(max(b.N/trials, 1))
	for i := range trials {
		a := function(uint64(i)+1, "train", 1, int32(i)) // the processes start
		o.mu.Lock()
		o.assignments = append(o.assignments, a)
		o.mu.Unlock()
	}
	o.with(func() {})
	for i := range trials {
		awaitBench(b, o, uint64(i)+1, func(m *outbidv1.UplinkMessage) bool { return m.GetReached() != nil })
	}
	o.with(func() { o.assignments = nil })
	for i := range trials {
		awaitBench(b, o, uint64(i)+1, func(m *outbidv1.UplinkMessage) bool { return m.GetEnded() != nil })
	}
	o.mu.Lock()
	for i := range trials {
		o.assignments = append(o.assignments, function(uint64(trials+i)+1, "flood", each, int32(i)))
	}
	before, uplinks := o.seen, o.uplinks
	o.mu.Unlock()
	b.ResetTimer()
	o.with(func() {})
	for i := range trials {
		awaitBench(b, o, uint64(trials+i)+1, func(m *outbidv1.UplinkMessage) bool { return m.GetEnded() != nil })
	}
	b.StopTimer()
	o.mu.Lock()
	defer o.mu.Unlock()
	b.ReportMetric(float64(each*trials)/b.Elapsed().Seconds(), "reports/s")
	b.ReportMetric(float64(o.seen-before)/float64(o.uplinks-uplinks), "messages/uplink")
}

// BenchmarkTrials measures how many trials of one report a second run in warm processes, 8 at a time, one after
// another on each device.
func BenchmarkTrials(b *testing.B) {
	const devices = 8
	s := newSite(b)
	s.work(b, "", func(c *Config) { c.Machine = machine(devices) })
	o := s.orch
	o.with(func() {
		for i := range devices {
			o.assignments = append(o.assignments, function(uint64(i)+1, "nan", 1, int32(i)))
		}
	})
	next, ended, seen := uint64(devices), 0, 0
	b.ResetTimer()
	for ended < b.N+devices {
		o.mu.Lock()
		changed := o.changed
		news := o.messages[seen:]
		seen = len(o.messages)
		sends := false
		for _, m := range news {
			if m.GetEnded() == nil {
				continue
			}
			ended++
			next++
			sends = true
			for i, a := range o.assignments {
				if a.GetFork().GetLeaseId() == m.GetFork().GetLeaseId() {
					o.assignments[i] = function(next, "nan", 1, a.GetBody().GetDevices()...)
				}
			}
		}
		if sends {
			o.order()
		}
		o.mu.Unlock()
		if ended < b.N+devices && len(news) == 0 {
			<-changed
		}
	}
	b.ReportMetric(float64(ended)/b.Elapsed().Seconds(), "trials/s")
}

func awaitBench(b *testing.B, o *orch, leaseID uint64, is func(*outbidv1.UplinkMessage) bool) {
	b.Helper()
	for from := 0; ; {
		o.mu.Lock()
		changed := o.changed
		for _, m := range o.messages[from:] {
			if m.GetFork().GetLeaseId() == leaseID && is(m) {
				o.mu.Unlock()
				return
			}
		}
		from = len(o.messages)
		o.mu.Unlock()
		<-changed
	}
}
