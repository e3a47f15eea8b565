package worker

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func pacedFork(rate int64) (*workerLoop, *fork) {
	a := newWorkerLoop(Config{Node: "n1", Boot: "b", Logger: slog.New(slog.DiscardHandler), Machine: machine(1)})
	as := assignment(1, 0, 0)
	as.ReportRate = rate
	a.assign(as)
	return a, a.forks[1]
}

// queued returns the number of queued reports, and the queued notes.
func queued(a *workerLoop) (reports int, notes []string) {
	a.out.mu.Lock()
	defer a.out.mu.Unlock()
	for _, e := range a.out.entries {
		if e.report > 0 {
			reports++
		}
		if n := e.message.GetNote(); n != nil {
			notes = append(notes, n.GetText())
		}
	}
	return reports, notes
}

func reports(n int) []*outbidv1.Report {
	all := make([]*outbidv1.Report, n)
	for i := range all {
		all[i] = report(uint64(i + 1))
	}
	return all
}

// Reports beyond the rate wait, none is lost, the wait is not a hang, and the user gets one note.
func TestReportsKeepToTheirRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		all := reports(n)
		rate := int64(10 * reportSize(all[0])) // ten reports a second
		a, f := pacedFork(rate)
		began := time.Now()
		over := make(chan time.Duration)
		go func() {
			f.Reports(all)
			over <- time.Since(began)
		}()
		<-time.After(10 * time.Second)
		synctest.Wait()
		if sent, _ := queued(a); sent < 90 || sent > 120 || !f.activity.stalled.Load() {
			t.Errorf("after ten seconds %d reports are queued, stalled: %v", sent, f.activity.stalled.Load())
		}
		if took := <-over; took < 48*time.Second || took > 52*time.Second {
			t.Errorf("%d reports took %s", n, took)
		}
		sent, notes := queued(a)
		if sent != n || len(notes) != 1 || !strings.Contains(notes[0], "(report_rate)") || !strings.Contains(notes[0], "vision") {
			t.Errorf("%d of %d reports are queued, and the notes are %q", sent, n, notes)
		}
		f.cancel(errUnwanted)
	})
}

// A new rate applies at once to a waiting report, and the end of a fork ends the wait.
func TestAWaitForTheRateEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fork){
		"another rate": func(f *fork) { f.messages.pace.setRate(0) },
		"its end":      func(f *fork) { f.messages.pace.release() },
		"its lease":    func(f *fork) { f.cancel(errExpired) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, f := pacedFork(1024)
				over := make(chan struct{})
				go func() {
					defer close(over)
					f.Reports(reports(100_000))
				}()
				synctest.Wait()
				before := time.Now()
				end(f)
				<-over
				if waited := time.Since(before); waited > 0 {
					t.Errorf("it waited for another %s", waited)
				}
				if sent, _ := queued(a); name != "its lease" && sent != 100_000 {
					t.Errorf("%d reports are queued", sent)
				}
				f.cancel(errUnwanted)
			})
		})
	}
}

// A pause does not wait for reports made before it, up to a limit.
func TestAPauseLetsReportsThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, f := pacedFork(1024)
		over := make(chan struct{})
		go func() {
			defer close(over)
			f.Reports(reports(pauseBytes / reportSize(report(1)) * 11 / 10))
		}()
		synctest.Wait()
		f.messages.pace.grantPause()
		synctest.Wait()
		most := pauseBytes / reportSize(report(1))
		if sent, _ := queued(a); sent < most || sent > most+100 {
			t.Errorf("%d reports are queued, want about %d", sent, most)
		}
		f.cancel(errUnwanted)
		<-over
	})
}

// A program that reports as fast as it can is limited to its rate, and ends at once on an order to stop.
func TestAPacedProgramIsStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.work(t, "", nil)
	o := s.orch
	a := script(1, `yes '{"loss": 1}' | head -n 10000 >> $OUTBID_REPORT; exec sleep 600`, 0, 0)
	a.ReportRate = 2048
	o.assign(a)
	o.awaitText(t, 1, "note s-1/1 waits when it reports")
	o.change(1, stop, 0)
	o.awaitText(t, 1, "ended ORDERED") // at its rate that would take minutes
}

// A fork that ends while its reports wait sends nothing that its trial could resume after them from.
func TestNothingFollowsADroppedReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := reports(3)
		a, f := pacedFork(int64(reportSize(all[0])) / 10)
		waits := make(chan struct{})
		go func() {
			f.Reports(all)
			close(waits)
		}()
		synctest.Wait()
		f.cancel(errUnwanted)
		<-waits
		sent, _ := queued(a)
		f.Reports([]*outbidv1.Report{report(4)})
		f.messages.queueMessage(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{Step: 3}}})
		f.messages.queueMessage(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 3}}})
		f.messages.queueMessage(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Step: 3}}})
		if now, _ := queued(a); sent == 3 || now != sent {
			t.Errorf("%d reports are queued, and %d after one was dropped", sent, now)
		}
		for _, e := range a.out.entries {
			if e.message.GetSaved() != nil || e.message.GetReached() != nil {
				t.Errorf("queued after a dropped report: %v", e.message)
			}
		}
		if last := a.out.entries[len(a.out.entries)-1]; last.message.GetEnded() == nil {
			t.Errorf("the end of the fork is not queued: %v", last.message)
		}
	})
}
