package generate

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// ThemisOptions describe the workloads of the Themis paper: hyperparameter explorations.
type ThemisOptions struct {
	Seed uint64
	// Halving selects workload 2 (jobs end by successive halving); otherwise it is workload 1 (performance curves).
	Halving bool
	Apps    int
	// Days is the length of the snapshot, and Contention the factor that compresses its arrivals.
	Days, Contention float64
	// EarlyStop lets a tuner that extrapolates learning curves stop the jobs of workload 1.
	EarlyStop bool
	// Arrivals is a trace whose busiest Days give the arrivals. Without one they come in bursts: Burst is the standard
	// deviation of the logarithm of an hour's intensity; with 0 they are uniform in time (Poisson).
	Arrivals *trace.Trace
	Burst    float64
	// Present is the number of apps that are present when the snapshot begins.
	Present int
	// OneTenant makes all apps one tenant's; otherwise each app is its own tenant.
	OneTenant bool
	// CV, NLP and Speech are the relative shares of the apps.
	CV, NLP, Speech float64
	// Single is the part of the apps that have one job. The number of jobs of the others has MedianJobs as the median
	// over all apps and is at most MaxJobs.
	Single                       float64
	FewJobs, MedianJobs, MaxJobs int
	// Tasks are the tasks of a job, one GPU each. They are a gang: "long running tasks that need to be scheduled
	// together". Elastic lets a job run with fewer at a time, which equation 1 allows.
	Tasks   []Choice
	Elastic bool
	// TaskHours is the median run time of a task of workload 1. AppSpread and JobSpread are the standard deviations of
	// its logarithm between apps, and between the jobs of an app.
	TaskHours, AppSpread, JobSpread float64
	// JobGPUs is the mean number of GPUs of a job of workload 1. An app of workload 2 has the same GPU time as one of
	// workload 1 with the same number of jobs and the same task length: its jobs have more tasks, and few complete all
	// phases.
	JobGPUs float64
	// Grow lets a job of workload 2 that survives use Eta times as many GPUs in the next phase, as in the paper;
	// otherwise its gang is constant.
	Grow bool
	// Eta is the factor of halving; StepSeconds the run time of one step with the whole gang.
	Eta         int
	StepSeconds float64
	// Network is the part of the apps whose models need a fast network; if negative, it follows from the mix.
	Network float64
}

// ThemisDefaults returns the paper's figures: 85 apps in two weeks; CV, NLP and speech 10, 60 and 30 %; one app in ten
// with a single job, a median of 75 jobs and a maximum of 100; a median task of 3.75 GPU-hours.
//
// Other values are Outbid's. With the spreads, one task in ten is more than ten times shorter than the median and one
// in ten more than ten times longer ("significant fraction"), and the median app of workload 1 takes the paper's 11.5
// GPU-days within a fifth. The paper shows the numbers of tasks only in a figure: in workload 1 "all jobs are either 1
// or 2 GPU jobs", and workload 2 has more. Arrivals are as bursty as those of Philly's busiest two weeks, where a tenth
// of the hours has 47 % of the jobs. The snapshot of a busy cluster begins with apps that came before: 10, by Little's
// law for 6 a day that stay for a day or two. No job takes longer than the snapshot, because it would not have ended in
// it.
func ThemisDefaults(halving bool) ThemisOptions {
	o := ThemisOptions{
		Halving: halving, Apps: 85, Days: 14, Contention: 1, Burst: 1.2, Present: 10,
		CV: .1, NLP: .6, Speech: .3,
		Single: .1, FewJobs: 20, MedianJobs: 75, MaxJobs: 100,
		Tasks:     []Choice{{1, .8}, {2, .2}},
		TaskHours: 3.75, AppSpread: 1.7, JobSpread: .3,
		JobGPUs: 1.2, Eta: 2, StepSeconds: 10, Network: -1,
	}
	if halving {
		o.Tasks, o.Grow = []Choice{{2, .4}, {4, .4}, {8, .2}}, true
	}
	return o
}

// themisModels returns the models of Gandiva's mix by category.
func themisModels() map[string][]string {
	return map[string][]string{
		"cv":     {"VGG16", "VGG19", "AlexNet", "Inception-v3", "ResNet-50"},
		"nlp":    {"GNMT", "Transformer", "Bi-Att-Flow", "LanguageModel"},
		"speech": {"DeepSpeech", "WaveNet"},
	}
}

// MakeThemis generates workload 1 or 2 of the Themis paper. Every app is a tenant. Jobs of workload 1 have their final
// length, like those of the paper's source trace; the paper's simulator also takes their number of iterations as known.
// With EarlyStop, and in workload 2, durations and steps are those of a job that is not stopped, and the app's tuner
// ends most of them sooner, by their losses.
func MakeThemis(o ThemisOptions) (*trace.Trace, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	workload := 1
	if o.Halving {
		workload = 2
	}
	out := &trace.Trace{Name: fmt.Sprintf("themis-w%d-%d", workload, o.Seed)}
	out.Source = fmt.Sprintf("made with the figures of the Themis paper: workload %d, seed %d, %d apps in %g days, "+
		"contention %g, network %g", workload, o.Seed, o.Apps, o.Days, o.Contention, o.Network)
	apps := newDraw(o.Seed, "themis apps")
	jobs := newDraw(o.Seed, "themis jobs")
	for i, at := range o.arrivals() {
		o.addApp(out, "app-"+strconv.Itoa(i), at, apps, jobs)
	}
	return out, nil
}

func (o *ThemisOptions) check() error {
	if o.FewJobs > o.MedianJobs || o.MedianJobs > o.MaxJobs {
		return fmt.Errorf("make a themis trace: jobs of an app %d, %d, %d: want few <= median <= max",
			o.FewJobs, o.MedianJobs, o.MaxJobs)
	}
	if !(o.Single >= 0 && o.Single < .5) {
		return fmt.Errorf("make a themis trace: single is %g: want 0 to .5", o.Single)
	}
	if o.Halving && o.Eta < 2 {
		return fmt.Errorf("make a themis trace: eta is %d: want 2 or more", o.Eta)
	}
	if !(o.CV >= 0 && o.NLP >= 0 && o.Speech >= 0) || !(o.AppSpread >= 0 && o.JobSpread >= 0) || !(o.Network <= 1) {
		return fmt.Errorf("make a themis trace: mix %g, %g, %g, spreads %g, %g, network %g: want none below 0, network at most 1",
			o.CV, o.NLP, o.Speech, o.AppSpread, o.JobSpread, o.Network)
	}
	if o.Present < 0 || o.Present > o.Apps || !(o.Burst >= 0) {
		return fmt.Errorf("make a themis trace: %d of %d apps present at the start, bursts of %g: want 0 to %d, and 0 or more",
			o.Present, o.Apps, o.Burst, o.Apps)
	}
	if o.Arrivals != nil && len(o.Arrivals.Jobs) == 0 {
		return fmt.Errorf("make a themis trace: the trace %s for the arrivals has no jobs", o.Arrivals.Name)
	}
	if err := checkChoices("make a themis trace: tasks", o.Tasks); err != nil {
		return err
	}
	return positive("make a themis trace", setting{"apps", float64(o.Apps)}, setting{"days", o.Days},
		setting{"contention", o.Contention}, setting{"few jobs", float64(o.FewJobs)}, setting{"task hours", o.TaskHours},
		setting{"GPUs of a job", o.JobGPUs},
		setting{"step seconds", o.StepSeconds}, setting{"the mix's sum", o.CV + o.NLP + o.Speech})
}

// arrivals returns the arrivals of the apps, sorted, the first at 0.
func (o *ThemisOptions) arrivals() []float64 {
	d, span := newDraw(o.Seed, "themis arrivals"), o.Days*86400
	var from *trace.Trace
	if o.Arrivals != nil {
		start := o.Arrivals.Busiest(span)
		from = o.Arrivals.Window(start, start+span)
	}
	at := make([]float64, max(0, o.Apps-o.Present))
	hours := o.hours(d)
	for i := range at {
		if from != nil {
			at[i] = from.Jobs[d.IntN(len(from.Jobs))].Submit
			continue
		}
		hour, _ := slices.BinarySearch(hours, d.between(0, hours[len(hours)-1]))
		at[i] = (float64(hour) + d.Float64()) / float64(len(hours)) * span
	}
	slices.Sort(at)
	first := 0.0
	if o.Present == 0 || from != nil && len(at) > 0 {
		first = at[0]
	}
	for i := range at {
		at[i] = (at[i] - first) / o.Contention
	}
	return append(make([]float64, o.Apps-len(at)), at...)
}

// hours returns the cumulative intensities of arrivals up to each hour of the snapshot.
func (o *ThemisOptions) hours(d draw) []float64 {
	hours, sum := make([]float64, max(1, int(o.Days*24))), 0.0
	for i := range hours {
		sum += math.Exp(o.Burst * d.NormFloat64())
		hours[i] = sum
	}
	return hours
}

func (o *ThemisOptions) addApp(out *trace.Trace, id string, at float64, apps, jobs draw) {
	category := o.category(apps)
	model := o.model(apps, category)
	n, gpus := o.jobs(apps), apps.choose(o.Tasks)
	median := 3600 * o.TaskHours * math.Exp(o.AppSpread*apps.NormFloat64())
	app := trace.App{ID: id, Tuner: "none", Category: category}
	if n > 1 && o.EarlyStop {
		app.Tuner = "performance-curve"
	}
	phases := 0
	if n > 1 && o.Halving {
		phases = int(math.Log(float64(n))/math.Log(float64(o.Eta)) + 1e-9)
	}
	if o.Halving {
		median *= o.JobGPUs / float64(gpus) / o.trained(phases)
	}
	median = min(median, o.Days*86400)
	full := max(1, int64(math.Round(median/o.StepSeconds)))
	if phases > 0 {
		app.Tuner, app.Eta = "successive-halving", o.Eta
		app.MinSteps = max(1, int64(float64(full)/math.Pow(float64(o.Eta), float64(phases))))
		app.MaxSteps, app.Grow = full, o.Grow
	}
	out.Apps = append(out.Apps, app)
	tenant := id
	if o.OneTenant {
		tenant = "one"
	}
	least := gpus
	if o.Elastic {
		least = 1
	}
	for i := range n {
		duration := min(median*math.Exp(o.JobSpread*jobs.NormFloat64()), o.Days*86400)
		steps := max(1, int64(math.Round(duration/o.StepSeconds)))
		if app.MaxSteps > 0 {
			// All jobs of the app go through the same phases; only the time of a step differs.
			steps = full
		}
		out.Jobs = append(out.Jobs, trace.Job{
			ID: id + "/" + strconv.Itoa(i), Tenant: tenant, Submit: at, MinGPUs: least, MaxGPUs: gpus, Share: 1,
			Duration: duration, TotalSteps: steps, Model: model, Weight: 1, App: id, Loss: jobs.lossCurve(steps),
		})
	}
}

// trained returns the mean part of the steps that a job of a successive halving does: all jobs reach the first rung,
// and one in eta continues from each rung to the next, which is eta times as far.
func (o *ThemisOptions) trained(phases int) float64 {
	eta := float64(o.Eta)
	return (1 + float64(phases)*(1-1/eta)) / math.Pow(eta, float64(phases))
}

func (o *ThemisOptions) category(d draw) string {
	switch at := d.Float64() * (o.CV + o.NLP + o.Speech); {
	case at < o.CV:
		return "cv"
	case at < o.CV+o.NLP:
		return "nlp"
	}
	return "speech"
}

func (o *ThemisOptions) model(d draw, category string) string {
	from := themisModels()[category]
	if o.Network >= 0 {
		network := d.Float64() < o.Network
		from = slices.DeleteFunc(from, func(model string) bool { return trace.NetworkIntensive(model) != network })
	}
	return from[d.IntN(len(from))]
}

// jobs draws the number of jobs of an app: one, or uniform on either side of the median over all apps.
func (o *ThemisOptions) jobs(d draw) int {
	if d.Float64() < o.Single {
		return 1
	}
	if d.Float64() < (.5-o.Single)/(1-o.Single) {
		return d.whole(o.FewJobs, o.MedianJobs)
	}
	return d.whole(o.MedianJobs, o.MaxJobs)
}
