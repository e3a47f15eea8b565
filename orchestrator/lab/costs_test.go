package lab_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/lab/plot"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

var (
	costs   = flag.String("costs", "", "folder for plots of the cost of a decision by the number of jobs")
	costsOf = flag.String("costs-of", "", "the policies to measure, separated by commas; all by default")
)

// tooLong is the longest decision after which a policy is not tried with more jobs.
const tooLong = 10 * time.Second

// TestCostOfDecisions plots the cost of a decision on 240 full devices while 32 to 100,000 jobs of 15 tenants wait, in
// CPU time: the median when a job ends, and the maximum, which for policies with rounds is a decision that begins one.
func TestCostOfDecisions(t *testing.T) { //nolint:paralleltest // it measures time
	if *costs == "" {
		t.Skip("measures for minutes: give -costs FOLDER")
	}
	var medians, longests []plot.Series
	names := lab.Policies().Names()
	if *costsOf != "" {
		names = strings.Split(*costsOf, ",")
	}
	for _, name := range names {
		median, longest := plot.Series{Name: name}, plot.Series{Name: name}
		row := []string{"`" + name + "`"}
		for _, jobs := range []int{32, 2048, 100_000} {
			took := cost(t, name, jobs)
			x := float64(jobs)
			median.Points = append(median.Points, plot.Point{X: x, Y: millis(took[len(took)/2])})
			longest.Points = append(longest.Points, plot.Point{X: x, Y: millis(took[len(took)-1])})
			row = append(row, fmt.Sprintf("%.3f | %.1f", millis(took[len(took)/2]), millis(took[len(took)-1])))
			if took[len(took)-1] > tooLong {
				break
			}
		}
		t.Logf("| %s |", strings.Join(row, " | "))
		medians, longests = append(medians, median), append(longests, longest)
	}
	for name, series := range map[string][]plot.Series{"decision-cost": medians, "decision-cost-longest": longests} {
		figure := plot.Lines{Title: "Cost of a decision", X: "jobs", Y: "ms", LogX: true, LogY: true, Marks: true, Series: series}
		if _, err := plot.Write(*costs, name, figure); err != nil {
			t.Fatal(err)
		}
	}
}

// processorTime returns the CPU time of the process, which unlike wall time does not depend on other processes.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func millis(d time.Duration) float64 { return max(1e-4, float64(d.Nanoseconds())/1e6) }

// crowd adds jobs of different sizes and lengths, plus 120 that fill 240 devices.
func crowd(jobs int) *stagetest.Stage {
	s := stagetest.New(stagetest.Nodes("v100", 30, 8, 4)...)
	for i := range jobs + 120 {
		s.Now = s.Now.Add(time.Second)
		n := 1 << (i * 7 % 4)
		app := s.App(fmt.Sprintf("job-%d", i), fmt.Sprintf("team-%d", i%15))
		s.Job(app, n, n, int64(1000+i*7919%100_000))
	}
	return s
}

// cost returns the durations of decisions, sorted.
func cost(t *testing.T, name string, jobs int) []time.Duration {
	t.Helper()
	s := crowd(jobs)
	p, err := lab.Policies().New(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := s.View()
	var took []time.Duration
	rounds := 60
	if jobs > 10_000 {
		rounds = 20
	}
	for round := range rounds {
		began := processorTime(t)
		plan := p.Decide(v)
		took = append(took, processorTime(t)-began)
		follow(v, plan)
		if round%2 == 1 {
			end(v)
		}
		v.Now = v.Now.Add(30 * time.Second)
		if took[len(took)-1] > tooLong {
			break
		}
	}
	slices.Sort(took)
	return took
}

// follow carries out a plan at once.
func follow(v *policy.View, plan policy.Plan) {
	for _, r := range plan.Revokes {
		v.Free.Release(r.Job.Gang(), r.Job.Demand)
		r.Job.Gangs, r.Job.Queued = nil, v.Now
	}
	for _, g := range plan.Grants {
		g.Job.Gangs, g.Job.Granted, g.Job.TermEnd = []cluster.Gang{g.Gang}, v.Now, g.TermEnd
		v.Free.Take(g.Gang, g.Job.Demand)
	}
	for _, r := range plan.Renews {
		r.Job.TermEnd = r.TermEnd
	}
	v.Free.Commit()
}

// end ends the job that has run longest.
func end(v *policy.View) {
	for i, a := range v.Apps {
		if len(a.Jobs) == 1 && a.Jobs[0].Running() {
			v.Free.Release(a.Jobs[0].Gang(), a.Jobs[0].Demand)
			v.Free.Commit()
			v.Apps = slices.Delete(v.Apps, i, i+1)
			return
		}
	}
}
