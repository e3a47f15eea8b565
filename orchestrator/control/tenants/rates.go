package tenants

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// reportMeter measures a tenant's reports against its rate. It is not part of the state: it decides how fast workers
// and clients may report, but not the effect of reports.
type reportMeter struct {
	// rate is the limit in bytes per second, or 0 for none. left is how many bytes could be reported at once at the
	// time at.
	rate, left float64
	at         time.Time
	// looked is when the limit was looked up.
	looked time.Time
	// minute is an exponential moving average of the bytes reported in a minute.
	minute float64
}

// burstSeconds is how many seconds' worth of its rate a tenant may report at once.
const burstSeconds = 1000

// meterOf updates and returns a tenant's meter. It looks up the limit at most once a second, because reports are
// frequent.
func (tn *Tenants) meterOf(tenant string) *reportMeter {
	m := tn.meters[tenant]
	if m == nil {
		m = &reportMeter{at: tn.core.Now(), left: math.Inf(1)}
		tn.meters[tenant] = m
	}
	passed := tn.core.Now().Sub(m.at).Seconds()
	if passed <= 0 && !m.looked.IsZero() {
		return m
	}
	if tn.core.Now().Sub(m.looked) >= time.Second {
		m.rate, m.looked = float64(max(0, tn.limitsOf(tenant).ReportRate)), tn.core.Now()
	}
	m.left, m.at = min(m.left+passed*m.rate, m.rate*burstSeconds), tn.core.Now()
	m.minute *= math.Exp(-passed / time.Minute.Seconds())
	return m
}

// Rates returns the bytes per second that tenants reported in the last minute.
func (tn *Tenants) Rates() map[string]float64 {
	all := make(map[string]float64, len(tn.meters))
	for tenant := range tn.meters {
		all[tenant] = tn.meterOf(tenant).minute / time.Minute.Seconds()
	}
	return all
}

// CountReport counts a report against its tenant's rate.
func (tn *Tenants) CountReport(s *state.Sweep, r *outbidv1.Report) {
	m, size := tn.meterOf(state.TenantOf(s.Spec)), float64(state.ReportSize(r))
	m.left, m.minute = m.left-size, m.minute+size
}

// CountBytes counts a change of a sweep that a user may repeat at will against its tenant's rate of reports.
func (tn *Tenants) CountBytes(s *state.Sweep, size int) {
	tn.meterOf(state.TenantOf(s.Spec)).left -= float64(size)
}

// TooFast returns an error with the time to wait if a tenant's clients must not report now, or nil.
func (tn *Tenants) TooFast(tenant string) error {
	m := tn.meterOf(tenant)
	if m.rate == 0 || m.left >= 0 {
		return nil
	}
	wait := max(time.Duration(-m.left/m.rate*float64(time.Second)).Round(time.Millisecond), time.Millisecond)
	return &state.LimitError{
		Limit: "report_rate", Tenant: tenant, RetryAfter: wait,
		Text: fmt.Sprintf("tenant %s reports faster than its limit of %.0f bytes a second; try again in %s", tenant, m.rate, wait),
	}
}

const (
	// leastShare is the minimum rate of a trial's reports in bytes per second.
	leastShare = 1 << 10
	// spendIn is in how many seconds the remainder of a burst may be spent.
	spendIn = 10
)

// ReportShare returns how fast a trial may report in bytes per second: its share of its tenant's rate, rounded down
// to a power of two so that it seldom changes. It returns 0 for no limit while the tenant has used less than half of
// its burst.
func (tn *Tenants) ReportShare(s *state.Sweep) int64 {
	tenant := state.TenantOf(s.Spec)
	m := tn.meterOf(tenant)
	if m.rate == 0 || m.left >= m.rate*burstSeconds/2 {
		return 0
	}
	running := 0
	for _, o := range tn.st.Live {
		if state.TenantOf(o.Spec) == tenant {
			running += len(o.Running)
		}
	}
	share := int64((m.rate + max(0, m.left)/spendIn) / float64(max(1, running)))
	return max(leastShare, int64(1)<<(bits.Len64(uint64(share))-1))
}
