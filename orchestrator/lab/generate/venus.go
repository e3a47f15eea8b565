package generate

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// VenusOptions describe jobs like Venus's as published in the ASTRAEA paper: run times from its table 1, gangs from its
// section 3.1, where single-GPU jobs are shorter than others. MakeVenus documents the assumptions.
type VenusOptions struct {
	Seed uint64
	// Jobs is the number of jobs that Tenants submit in Days; Devices is the number of devices that they share.
	Jobs, Tenants, Devices int
	Days                   float64
	// Sizes, Activity and Burst are standard deviations of logarithms: of tenants' shares of the devices, of their
	// submissions relative to their share, and of their rate of submission from one half of a day to the next.
	Sizes, Activity, Burst float64
}

// VenusDefaults returns the paper's two weeks: 11,304 jobs of 16 tenants (on 100 nodes of 8 GPUs).
func VenusDefaults() VenusOptions {
	return VenusOptions{Jobs: 11304, Tenants: 16, Devices: 800, Days: 14, Sizes: 1, Activity: .5, Burst: 1}
}

// span is a range of run times in seconds, and the share of jobs in it.
type span struct{ from, to, share float64 }

// venusSpans returns table 1's spans for Venus, with shares of all jobs. The lower end of the first and the upper end
// of the last are assumed.
func venusSpans() []span {
	const minute, hour, day = 60, 3600, 86400
	return []span{
		{5, 10 * minute, .673},
		{10 * minute, hour, .160},
		{hour, 6 * hour, .073},
		{6 * hour, day, .056},
		{day, 6 * day, .034},
		{6 * day, 10 * day, .004},
	}
}

// MakeVenus generates jobs. Published are the shares of run times, of jobs of one GPU (52.5 %), of eight (22.6 %) and
// of more (10.3 %), and that of the jobs of one GPU 87.4 % run for less than an hour and 2.2 % for more than a day. The
// shares of other jobs follow from table 1.
//
// The rest is assumed. Run times within a span are log-uniform. Gangs of two and four are equally frequent. Of gangs of
// more than eight, 80 % have 16, 15 % have 32 and 5 % have 64. Tenants have at least eight devices, and their shares
// are their weights. A job belongs to a tenant whose share is at least its gang. Arrivals follow the hour of the day
// and each tenant's bursts.
func MakeVenus(o VenusOptions) (*trace.Trace, error) {
	if o.Jobs < 1 || o.Tenants < 1 || o.Devices < venusLeast*o.Tenants {
		return nil, fmt.Errorf("make a trace like Venus's: jobs is %d, tenants is %d and devices is %d: want 1 or more, and %d devices for each tenant",
			o.Jobs, o.Tenants, o.Devices, venusLeast)
	}
	if err := positive("make a trace like Venus's", setting{"days", o.Days}); err != nil {
		return nil, err
	}
	if !trace.Finite(o.Sizes, o.Activity, o.Burst) || min(o.Sizes, o.Activity, o.Burst) < 0 {
		return nil, fmt.Errorf("make a trace like Venus's: sizes is %g, activity %g and burst %g: want 0 or more", o.Sizes, o.Activity, o.Burst)
	}
	owners := o.owners()
	gangs := slices.DeleteFunc([]Choice{
		{1, .525}, {2, .073}, {4, .073}, {8, .226}, {16, .103 * .8}, {32, .103 * .15}, {64, .103 * .05},
	}, func(c Choice) bool { return float64(c.GPUs) > slices.Max(owners.parts) })
	one, more := venusShares()
	d, long := newDraw(o.Seed, "venus gangs"), newDraw(o.Seed, "venus run times")
	out := &trace.Trace{
		Name:   "venus-like-" + strconv.FormatUint(o.Seed, 10),
		Source: fmt.Sprintf("made by the ASTRAEA paper's figures of Venus: %d jobs of %d tenants in %g days, seed %d", o.Jobs, o.Tenants, o.Days, o.Seed),
	}
	for i := range o.Jobs {
		gpus, shares := d.choose(gangs), more
		if gpus == 1 {
			shares = one
		}
		tenant, submit := owners.next(gpus)
		out.Jobs = append(out.Jobs, trace.Job{
			ID: "venus-" + strconv.Itoa(i), Tenant: tenant, Submit: submit, MinGPUs: gpus, MaxGPUs: gpus, Share: 1,
			Duration: long.runTime(shares), Weight: 1,
		})
	}
	out.Order()
	for i, name := range owners.names {
		out.Tenants = append(out.Tenants, trace.Tenant{Name: name, Weight: owners.parts[i]})
	}
	return out, nil
}

// venusShares returns the spans of jobs of one GPU, and of the others.
func venusShares() (one, more []span) {
	const single, underHour, overDay = .525, .874, .022
	// by class of run time, under an hour, to a day and beyond: of all jobs, and of those of one GPU
	all, ones := [3]float64{.833, .129, .038}, [3]float64{underHour, 1 - underHour - overDay, overDay}
	for i, s := range venusSpans() {
		class := i / 2
		part := s.share / all[class]
		one = append(one, span{s.from, s.to, part * ones[class]})
		more = append(more, span{s.from, s.to, part * (all[class] - single*ones[class]) / (1 - single)})
	}
	return one, more
}

// runTime draws a span, and a time in it.
func (d draw) runTime(from []span) float64 {
	at := d.Float64()
	chosen := from[len(from)-1]
	for _, s := range from {
		if at -= s.share; at < 0 {
			chosen = s
			break
		}
	}
	return math.Round(chosen.from * math.Pow(chosen.to/chosen.from, d.Float64()))
}

// venusLeast is the minimum number of a tenant's devices.
const venusLeast = 8

// venusOwners draws the tenant and the time of the next job.
type venusOwners struct {
	draw
	names []string
	// parts are shares of the devices, activity is the relative frequency of a tenant's jobs, and ends are cumulative
	// rates by hour.
	parts, activity []float64
	ends            [][]float64
}

// owners draws the tenants: their shares, their activity, and their rates.
func (o *VenusOptions) owners() *venusOwners {
	d := newDraw(o.Seed, "venus tenants")
	all := &venusOwners{draw: newDraw(o.Seed, "venus arrivals")}
	sum := 0.0
	for i := range o.Tenants {
		size := d.lognormal(1, o.Sizes)
		sum += size
		all.names, all.parts = append(all.names, fmt.Sprintf("vc-%03d", i)), append(all.parts, size)
	}
	for i := range all.parts {
		all.parts[i] = venusLeast + float64(o.Devices-venusLeast*o.Tenants)*all.parts[i]/sum
		all.activity = append(all.activity, d.lognormal(all.parts[i], o.Activity))
		all.ends = append(all.ends, d.bursts(o.Days, o.Burst))
	}
	return all
}

// bursts returns a cumulative rate by hour. The rate follows the hour of the day, with a minimum at four in the
// morning, and changes every half day.
func (d draw) bursts(days, sigma float64) (sums []float64) {
	rate, at := 1.0, 0.0
	for hour := range int(math.Ceil(days * 24)) {
		if hour%12 == 0 {
			rate = d.lognormal(1, sigma)
		}
		at += rate * (1 - .6*math.Cos(2*math.Pi*float64(hour%24-4)/24))
		sums = append(sums, at)
	}
	return sums
}

// next draws the tenant of a gang, among those whose share is large enough, and its arrival.
func (v *venusOwners) next(gpus int) (tenant string, submit float64) {
	var sums []float64
	sum := 0.0
	for i, part := range v.parts {
		if float64(gpus) <= part {
			sum += v.activity[i]
		}
		sums = append(sums, sum)
	}
	owner := v.within(sums)
	hour := v.within(v.ends[owner])
	return v.names[owner], math.Floor(3600 * (float64(hour) + v.Float64()))
}

// within draws an index by cumulative weights.
func (v *venusOwners) within(sums []float64) int {
	all := sums[len(sums)-1]
	at := v.Float64() * all
	return slices.IndexFunc(sums, func(sum float64) bool { return at < sum || sum == all })
}
