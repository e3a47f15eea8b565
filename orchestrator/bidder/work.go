package bidder

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
)

// work is the remaining work of a sweep. Steps of trials that are slower or faster than the median trial are
// converted to the median trial's steps, so that one speed applies to all.
type work struct {
	// pace is the model of the median trial by time per step, and rate its steps per second on one device of its best
	// type.
	pace *cluster.Speeds
	best string
	rate float64
	// now has the remaining steps of every trial in the current phase, the most first, and sum their prefix sums.
	now, sum []float64
	// room is how many gangs the k longest trials can use at once, by k: one each, or one for each possible fork. A
	// trial is not forked with fewer than least gangs.
	room  []int
	least int
	// later has the phases after the current one.
	later []stage
	// loose is work besides that of the current trials that does not wait for other trials: ASHA's promotions and
	// trials still to be created (equation 2 has none). longest is the steps that one trial has to do until the sweep
	// ends.
	loose, longest float64
	// left is all remaining steps, and done the completed ones.
	left, done float64
}

// stage is a future phase: a number of trials with a number of steps each. Which trials they will be is unknown, so
// the median trial represents each (section 5.2).
type stage struct {
	jobs  float64
	steps float64
}

// newWork computes a sweep's work from its state.
func newWork(s *AppState) *work {
	w := &work{done: s.StepsDone}
	w.choosePace(s)
	traits := registry.TraitsOf(s.Tuner)
	staged := traits.Rungs != tuner.NoRungs
	w.addCurrent(s, staged)
	switch {
	case staged && traits.Rungs != tuner.AsynchronousRungs && oneBracket(s):
		w.addStages(s)
	case traits.Independent:
		w.addToCome(s)
	case s.Outlook.Steps > 0:
		w.addRest(s, traits.Rungs)
	}
	if w.left <= 0 {
		// It is about to end: the value is too small to matter.
		w.now, w.room, w.left = append(w.now, 1), append(w.room, w.room[len(w.room)-1]+1), 1
	}
	w.sum = make([]float64, len(w.now)+1)
	for i, steps := range w.now {
		w.sum[i+1] = w.sum[i] + steps
	}
	return w
}

// addCurrent adds the work of the current trials, the most first.
func (w *work) addCurrent(s *AppState, staged bool) {
	type one struct {
		steps float64
		forks int
	}
	jobs := make([]one, len(s.Jobs))
	for i := range s.Jobs {
		j := &s.Jobs[i]
		jobs[i] = one{remainingSteps(j, s, staged) * w.slower(j), forksOf(s, j.Forks, j.LeastForks)}
		w.left += jobs[i].steps
		w.least = max(w.least, j.LeastForks)
	}
	slices.SortStableFunc(jobs, func(a, b one) int { return cmp.Compare(b.steps, a.steps) })
	w.room = make([]int, 1, len(jobs)+2)
	for i, j := range jobs {
		w.now, w.room = append(w.now, j.steps), append(w.room, w.room[i]+j.forks)
	}
}

// remainingSteps returns the remaining steps of a trial: to its current target if that is a phase or rung, otherwise
// to its forecast end, or else to the end of its full training. If the end is unknown, it is as many steps again as
// are done.
func remainingSteps(j *Job, s *AppState, staged bool) float64 {
	until := max(j.Total, j.Until)
	switch {
	case staged && j.Until > 0:
		until = j.Until
	case j.Forecast > 0:
		until = j.Forecast
	case until == 0:
		until = max(s.TotalSteps, 2*j.Done, 1)
	}
	return max(0, until-j.Done)
}

// choosePace finds the median trial by its time per step on one device.
func (w *work) choosePace(s *AppState) {
	w.pace = s.Speeds
	if !alike(s.Jobs) {
		order := make([]int, len(s.Jobs))
		for i := range order {
			order[i] = i
		}
		kind := ""
		if len(s.Cluster) > 0 {
			kind = s.Cluster[0].Type
		}
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(s.Jobs[a].Speeds.Rate(kind, 1, cluster.SameSlot), s.Jobs[b].Speeds.Rate(kind, 1, cluster.SameSlot))
		})
		w.pace = s.Jobs[order[(len(order)-1)/2]].Speeds // of two, the slower, as in the example of section 5.3
	} else if len(s.Jobs) > 0 {
		w.pace = s.Jobs[0].Speeds
	}
	for _, t := range s.Cluster {
		if !s.Demand.Accepts(t.Type) || t.Devices == 0 {
			continue
		}
		if rate := w.pace.Rate(t.Type, 1, cluster.SameSlot); rate > w.rate {
			w.best, w.rate = t.Type, rate
		}
	}
	if w.rate <= 0 {
		w.rate = 1
	}
}

func alike(jobs []Job) bool {
	for i := range jobs {
		if jobs[i].Speeds != jobs[0].Speeds {
			return false
		}
	}
	return true
}

// slower returns how many times as long a trial's steps take as the median trial's.
func (w *work) slower(j *Job) float64 {
	if j.Speeds == w.pace {
		return 1
	}
	own := j.Speeds.Rate(w.best, 1, cluster.SameSlot)
	if own <= 0 {
		return 1
	}
	return w.rate / own
}

func oneBracket(s *AppState) bool {
	for _, r := range s.Outlook.Rungs {
		if r.Bracket != s.Outlook.Rungs[0].Bracket {
			return false
		}
	}
	return len(s.Outlook.Rungs) > 0
}

// addStages adds the phases after the current one (equation 2).
func (w *work) addStages(s *AppState) {
	level := 0.0
	for i := range s.Jobs {
		if u := s.Jobs[i].Until; u > 0 && (level == 0 || u < level) {
			level = u
		}
	}
	future, current := 0.0, stage{}
	for _, r := range s.Outlook.Rungs {
		steps := float64(r.Steps)
		if until := float64(r.UntilStep); until > level && r.Trials > 0 {
			w.later = append(w.later, stage{jobs: float64(r.Trials), steps: steps / float64(r.Trials)})
			future += steps
		} else if until == level && r.Trials > 0 {
			current = stage{jobs: float64(r.Trials), steps: steps / float64(r.Trials)}
		}
	}
	// Trials of the current phase that were not created yet.
	missing := float64(s.Outlook.Steps) - s.StepsDone - w.left - future
	if current.steps > 0 && missing >= current.steps/2 {
		w.loose = missing
		w.left += missing
	}
	w.left += future
}

// addToCome adds trials still to be created for tuners whose trials are independent and fully trained. Ended trials have
// no work left, however few steps they reported; in the sweep's total work they count as in the spec.
func (w *work) addToCome(s *AppState) {
	if s.Outlook.Trials == 0 || s.Outlook.Steps == 0 {
		return
	}
	each := float64(s.Outlook.Steps) / float64(s.Outlook.Trials)
	if w.loose = each * float64(max(0, s.Outlook.Trials-s.Finished-len(s.Jobs))); w.loose > 0 {
		w.longest = s.TotalSteps
	}
	w.left += w.loose
	w.done = max(w.done, float64(s.Outlook.Steps)-w.left)
}

// addRest adds work that is neither done nor that of a current trial: trials to come, promotions, other brackets. This
// work only waits for devices.
func (w *work) addRest(s *AppState, rungs tuner.Rungs) {
	if more := float64(s.Outlook.Steps) - s.StepsDone - w.left; more > 0 {
		w.loose = more
		w.left += more
	}
	if rungs == tuner.AsynchronousRungs || rungs == tuner.BracketRungs {
		furthest := 0.0
		for i := range s.Jobs {
			furthest = max(furthest, s.Jobs[i].Done)
		}
		w.longest = max(0, s.TotalSteps-furthest)
	} else if w.loose > 0 {
		w.longest = s.TotalSteps
	}
}

// seconds returns T_sh without the elapsed time: the time for the work on gangs of the given speeds, the fastest
// first, where speed is their sum and most the highest speed of one trial. Trials take turns when leases end, so a
// phase takes as long as the preemptive optimum on uniform machines (Horvath, Lam and Sethi, 1977): the k longest
// trials on the k fastest gangs, for the worst k, or everything on all gangs. Trials that may be forked use as many
// gangs as they may have forks, because the work of forks adds up. A phase ends with its last trial (max_j in eq. 2).
func (w *work) seconds(speeds []float64, speed, most float64) float64 {
	if speed <= 0 {
		return 0
	}
	total := w.sum[len(w.now)] + w.loose
	use, took, used := 0.0, 0.0, 0
	forks := w.forked(len(speeds))
	for k := 0; k < len(w.now) && used < len(speeds); k++ {
		room := k + 1
		if forks {
			room = w.room[k+1]
		}
		for used < min(room, len(speeds)) {
			use += speeds[used]
			used++
		}
		took = max(took, w.sum[k+1]/use)
	}
	if w.loose > 0 {
		for _, s := range speeds[used:] {
			use += s
		}
	}
	if use > 0 {
		took = max(took, total/use)
	}
	if most = max(most, speeds[0]); w.longest > 0 {
		took = max(took, w.longest/most)
	}
	for _, p := range w.later {
		took += p.steps * max(1/most, p.jobs/speed)
	}
	return took
}

// forked reports whether there are enough gangs to fork a trial when every trial has one.
func (w *work) forked(gangs int) bool { return gangs-len(w.now)+1 >= max(2, w.least) }
