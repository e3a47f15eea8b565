package agent

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// work is what an app has still to do. Steps of jobs that take longer or shorter than the median job's are counted in
// the median job's steps, so that one speed serves for all.
type work struct {
	// pace is the model of the median job by time per step; rate its steps per second on one device of its best type.
	pace *cluster.Speeds
	best string
	rate float64
	// now is the steps left of every job in the phase at hand, the most first, and sum their prefix sums.
	now, sum []float64
	// room is how many gangs the longest jobs can use at once, by how many jobs they are: one each, or as many as they may have forks.
	// With fewer gangs for a job than least it is not forked.
	room  []int
	least int
	// later is the phases after it.
	later []stage
	// loose is work that waits for nobody, beside that of the jobs at hand (eq. 2 has none; ASHA's promotions and trials
	// still to be created are), and longest the steps that one job has to go through to the app's end.
	loose, longest float64
	// left is all of it, and done the steps behind.
	left, done float64
}

// stage is a phase to come: so many jobs, so many steps each. Which jobs they will be is not known; the median job stands
// for each (section 5.2).
type stage struct {
	jobs  float64
	steps float64
}

// newWork reads an app's work off its state.
func newWork(s *AppState) *work {
	w := &work{done: s.StepsDone}
	w.choosePace(s)
	staged := s.Tuner == "successive_halving" || s.Tuner == "hyperband" || s.Tuner == "asha"
	w.atHand(s, staged)
	switch {
	case staged && s.Tuner != "asha" && oneBracket(s):
		w.stages(s)
	case s.Tuner == "random" || s.Tuner == "grid":
		w.toCome(s)
	case s.Outlook.Steps > 0:
		w.rest(s)
	}
	if w.left <= 0 {
		// It is about to end: a step is less than anything that could matter.
		w.now, w.room, w.left = append(w.now, 1), append(w.room, w.room[len(w.room)-1]+1), 1
	}
	w.sum = make([]float64, len(w.now)+1)
	for i, steps := range w.now {
		w.sum[i+1] = w.sum[i] + steps
	}
	return w
}

// atHand reads the work of the jobs at hand, the most first.
func (w *work) atHand(s *AppState, staged bool) {
	type one struct {
		steps float64
		forks int
	}
	jobs := make([]one, len(s.Jobs))
	for i := range s.Jobs {
		j := &s.Jobs[i]
		jobs[i] = one{left(j, s, staged) * w.slower(j), forksOf(s, j.Forks, j.LeastForks)}
		w.left += jobs[i].steps
		w.least = max(w.least, j.LeastForks)
	}
	slices.SortStableFunc(jobs, func(a, b one) int { return cmp.Compare(b.steps, a.steps) })
	w.room = make([]int, 1, len(jobs)+2)
	for i, j := range jobs {
		w.now, w.room = append(w.now, j.steps), append(w.room, w.room[i]+j.forks)
	}
}

// left is the steps that a job has to do in the phase or rung at hand if there are any, otherwise to its end as forecast
// from its curve, or else to that of its whole training. If nobody knows the end, as many again as it did.
func left(j *Job, s *AppState, staged bool) float64 {
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

// choosePace finds the median job by its time per step on one device.
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

// slower is by how much a job's steps take longer than the median job's.
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

// stages adds the phases after the one at hand (equation 2).
func (w *work) stages(s *AppState) {
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
	// Trials of the phase at hand that were not created yet.
	missing := float64(s.Outlook.Steps) - s.StepsDone - w.left - future
	if current.steps > 0 && missing >= current.steps/2 {
		w.loose = missing
		w.left += missing
	}
	w.left += future
}

// toCome adds the trials still to be created, where each is on its own and goes to its end. Those that have ended leave
// nothing behind, however few steps they reported; in the app's whole work they count as the spec has them.
func (w *work) toCome(s *AppState) {
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

// rest adds what is neither done nor a visible job's: trials still to come, promotions, other brackets. Nothing of it
// waits for anything but devices.
func (w *work) rest(s *AppState) {
	if more := float64(s.Outlook.Steps) - s.StepsDone - w.left; more > 0 {
		w.loose = more
		w.left += more
	}
	if s.Tuner == "asha" || s.Tuner == "hyperband" {
		furthest := 0.0
		for i := range s.Jobs {
			furthest = max(furthest, s.Jobs[i].Done)
		}
		w.longest = max(0, s.TotalSteps-furthest)
	} else if w.loose > 0 {
		w.longest = s.TotalSteps
	}
}

// seconds is T_sh less what has elapsed: the time that the work takes on gangs of the given speeds, the fastest first,
// which are speed together, if a job can have at most one of speed most. Jobs take turns at the ends of leases, so that
// a phase takes as long as the preemptive optimum on uniform machines (Horvath, Lam and Sethi, 1977): the k longest
// jobs on the k fastest gangs, for the worst k, or everything on all. Jobs that may be forked are on as many gangs as they may have
// forks, as what forks do adds up. A phase ends with its last job (max_j in eq. 2).
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

// forked says whether so many gangs are enough to fork a job, when every job has one.
func (w *work) forked(gangs int) bool { return gangs-len(w.now)+1 >= max(2, w.least) }
