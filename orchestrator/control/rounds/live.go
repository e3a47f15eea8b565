package rounds

import (
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// live computes values of the changing state on demand for a view, until the view is frozen for a concurrent round.
type live struct {
	mu sync.Mutex
	// rounds is nil once live is frozen. outlooks and weights then hold the values of the view's apps and their
	// tenants.
	rounds   *Rounds
	outlooks map[string]tuner.Outlook
	weights  map[string]float64
}

func (l *live) outlook(sweep string) tuner.Outlook {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rounds == nil {
		return l.outlooks[sweep]
	}
	o, _ := l.rounds.tuning.Outlook(sweep)
	return o
}

func (l *live) meanWeight(tenant string) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rounds == nil {
		return l.weights[tenant]
	}
	return l.rounds.st.MeanWeight(tenant)
}

func (l *live) freeze(apps []*policy.App) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outlooks, l.weights = make(map[string]tuner.Outlook, len(apps)), map[string]float64{}
	for _, a := range apps {
		l.outlooks[a.ID], _ = l.rounds.tuning.Outlook(a.ID)
		if _, known := l.weights[a.Tenant]; !known {
			l.weights[a.Tenant] = l.rounds.st.MeanWeight(a.Tenant)
		}
	}
	l.rounds = nil
}
