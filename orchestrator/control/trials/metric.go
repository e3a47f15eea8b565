package trials

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lacksMetric returns that a trial never reported the metric that its sweep optimises, or "" if it did. Such a trial
// is useless to the tuner even if its code succeeded.
func (ts *Trials) lacksMetric(s *state.Sweep, t *state.Trial) string {
	if t.HasMetric() || ts.mayReportNothing {
		return ""
	}
	return missingMetric(s.Spec.GetMetric(), t.Last)
}

// missingMetric describes that a trial did not report its sweep's metric, and lists the metrics that it reported. The
// note about the first such report and the reason of a trial that ended for it have the same words, so that clients
// can show the mistake once.
func missingMetric(metric string, r *outbidv1.Report) string {
	return fmt.Sprintf("it reported no %s, which the sweep is to optimise; %s", quoted(metric), reportedInstead(metric, r))
}

// mostNames limits how many metrics are listed.
const mostNames = 10

// reportedInstead names the metrics of a report, and which of them was probably meant.
func reportedInstead(metric string, r *outbidv1.Report) string {
	names := slices.Sorted(maps.Keys(r.GetMetrics()))
	if len(names) == 0 {
		return "it reported nothing"
	}
	near := spec.Nearest(metric, names)
	if len(names) > mostNames {
		names = append(names[:mostNames:mostNames], "...")
	}
	text := "it reported " + strings.Join(names, ", ")
	if near != "" {
		text += "; is " + near + " what was meant?"
	}
	return text
}

func quoted(name string) string { return strconv.Quote(name) }

// nothingReported is the metric that the SDK sends if a Ray Tune function succeeded without a report. The sweep's
// metric is NaN in that report.
const nothingReported = "reported_nothing"

// warnOfMetric warns the user about the first report that lacks the sweep's metric or has a value that is not finite.
func (ts *Trials) warnOfMetric(s *state.Sweep, t *state.Trial, r *outbidv1.Report) {
	value, has := r.GetMetrics()[s.Spec.GetMetric()]
	if _, nothing := r.GetMetrics()[nothingReported]; nothing {
		return
	}
	if has && !state.Finite(value) && !t.NaNNoted {
		ts.core.Note(s.ID, &t.Number, "warning", "reported %s for %s at step %d: it counts as the worst value", unbounded(value), s.Spec.GetMetric(), r.GetStep())
	}
	if !has && s.Best < 0 && !s.LackNoted && len(r.GetMetrics()) > 0 {
		ts.core.Note(s.ID, &t.Number, "warning", "%s: it fails unless a later report has it", missingMetric(s.Spec.GetMetric(), r))
	}
}

// unbounded returns the name of a value that is not finite, as reports write it.
func unbounded(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	default:
		return "NaN"
	}
}

// ValueText formats a value for people.
func ValueText(v float64) string {
	if state.Finite(v) {
		return fmt.Sprintf("%g", v)
	}
	return unbounded(v)
}
