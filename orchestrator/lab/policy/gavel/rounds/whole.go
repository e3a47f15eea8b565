package rounds

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// count is the state that Gavel's simulator would have for a job: with whole-steps the mechanism follows it instead of
// the real job. Jobs that have really ended but have steps left by this count keep their turns.
type count struct {
	// Left is steps left.
	Left int64 `json:"left"`
	// Failures in a row: rounds in which some worker had no step to do.
	Failures int `json:"failures,omitempty"`
	// Came is when the job arrived, on the policy's clock. Scale, Rate by type, and Weight are as last seen.
	Came   float64   `json:"came"`
	Scale  int       `json:"scale"`
	Rate   []float64 `json:"rate"`
	Weight float64   `json:"weight"`
}

// maxFailures is how many failures in a row make Gavel's simulator drop a job.
const maxFailures = 5

// steps returns the steps that an assignment's job does in its round, and their duration in seconds.
func (p *Policy) steps(s *assignment) (steps int64, seconds float64) {
	c := &p.s.Counts[p.s.Rounds.Index(s.Job)]
	if s.Type >= len(c.Rate) || c.Rate[s.Type] <= 0 {
		return 0, 0
	}
	steps = min(int64(c.Rate[s.Type]*p.seconds), c.Left)
	return steps, float64(steps) / c.Rate[s.Type]
}

// setRoundLength sets the length of the round: until the last of its jobs has done its whole steps.
func (p *Policy) setRoundLength() {
	longest := 0.0
	for i := range p.s.Assignments {
		_, seconds := p.steps(&p.s.Assignments[i])
		longest = max(longest, seconds)
	}
	p.s.Length = max(time.Duration(longest*float64(time.Second)), time.Millisecond)
}

// recordWholeRound records the round that ends.
func (p *Policy) recordWholeRound(v *policy.View) {
	if v.Now.Before(p.next()) {
		return // the same round begins again
	}
	for i := range p.s.Assignments {
		s := &p.s.Assignments[i]
		steps, seconds := p.steps(s)
		c := &p.s.Counts[p.s.Rounds.Index(s.Job)]
		each := steps / int64(c.Scale)
		if rest := steps - each*int64(c.Scale-1); rest <= 0 || c.Scale > 1 && each <= 0 {
			p.s.Rounds.Changed = true
			if c.Failures++; c.Failures >= maxFailures {
				c.Left = 0
			}
			continue
		}
		c.Failures = 0
		c.Left -= steps
		p.s.Rounds.Ran(s.Job, s.Type, seconds)
	}
}

// remember gives an ended job its last rows.
func (p *Policy) remember(i int, rates *[]float64, mays *[]bool) {
	t, c := &p.turn, &p.s.Counts[i]
	row, may := cut(rates, len(p.s.Types)), cut(mays, len(p.s.Types))
	for k := range row {
		row[k], may[k] = 0, true
		if k < len(c.Rate) {
			row[k] = c.Rate[k]
		}
	}
	t.scale, t.rate, t.may = append(t.scale, c.Scale), append(t.rate, row), append(t.may, may)
}
