package control

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lacksMetric returns that a trial never reported the metric that its sweep optimises, or "" if it did. Such a trial
// is useless to the tuner even if its code succeeded.
func (c *Core) lacksMetric(s *state.Sweep, t *state.Trial) string {
	if t.HasMetric() || c.set.MayReportNothing {
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
