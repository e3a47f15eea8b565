package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The streams separate the uses of a sweep's seed: drawing more from one does not change the others.
const (
	trialStream = 0x747269616c
	pointStream = 0x706f696e74
)

// Configs is the source of new configurations and of the trials' seeds.
type Configs struct {
	Space   *space.Space
	Sampler sample.Sampler
	Root    uint64
	// Points are the initial configurations: trial t uses points[t].
	Points []space.Point
	// past are the trials of earlier sweeps, for a sampler that remembers.
	past []sample.Past
	// dry is set once the sampler is exhausted, as at the end of a grid.
	dry bool
}

func newConfigs(settings tuner.Settings, t *outbidv1.Tuner, k *Kind) (*Configs, error) {
	spec := settings.Spec
	s, err := space.Compile(spec.GetSpace(), spec.GetConstraints())
	if err != nil {
		return nil, err
	}
	if err := k.CheckSettings(t, s); err != nil {
		return nil, err
	}
	c := &Configs{Space: s, Root: t.GetSeed(), past: pastOf(settings.Memory, s.Dims())}
	drawn, err := newSampler(k, t, s)
	if err != nil {
		return nil, err
	}
	c.use(drawn)
	return c, c.readPoints(spec)
}

func newSampler(k *Kind, t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error) {
	if k.Sampler != nil {
		return k.Sampler(t, s)
	}
	drawn, err := sample.New(setting.SamplerName(t), s, t.GetSeed())
	if err != nil {
		return nil, fmt.Errorf("tuner.%s.%w", k.Name, err)
	}
	return drawn, nil
}

// use sets the sampler.
func (c *Configs) use(s sample.Sampler) {
	c.Sampler = s
	if r, ok := s.(sample.Rememberer); ok {
		r.Remember(c.past)
	}
}

// pastOf returns the trials in a memory. It leaves out sweeps whose numbers do not fit together.
func pastOf(m *outbidv1.Memory, dims int) (past []sample.Past) {
	for _, s := range m.GetSweeps() {
		if len(s.GetPoints()) != dims*len(s.GetCosts()) {
			continue
		}
		var p sample.Past
		for at := range slices.Chunk(s.GetPoints(), max(1, dims)) {
			point := make([]float64, dims)
			for i, u := range at {
				point[i] = float64(u)
			}
			p.Points = append(p.Points, point)
		}
		p.Costs = s.GetCosts()
		past = append(past, p)
	}
	return past
}

// next returns the configuration of a new trial: an initial one or a draw. It returns false if none is left.
func (c *Configs) next(t tuner.Trial) (tuner.Config, bool, error) {
	if int(t) < len(c.Points) {
		config, err := c.point(int(t))
		if err == nil {
			c.recordConfig(config)
		}
		return config, err == nil, err
	}
	config, ok, err := c.Sampler.Next()
	if err != nil {
		return nil, false, err
	}
	if c.dry = !ok; ok {
		c.recordConfig(config)
	}
	return config, ok, nil
}

// recordConfig informs a learning sampler of the configuration of the next trial.
func (c *Configs) recordConfig(config tuner.Config) {
	if l, ok := c.Sampler.(sample.Learner); ok {
		l.Took(config)
	}
}

// recordCosts informs a learning sampler of the final costs of a trial.
func (c *Configs) recordCosts(t tuner.Trial, costs []float64) {
	several, can := c.Sampler.(sample.SeveralLearner)
	if can && len(costs) > 1 {
		several.ToldAll(int(t), costs)
	} else if l, ok := c.Sampler.(sample.Learner); ok {
		l.Told(int(t), costs[0])
	}
}

// seed returns the seed that trial t's training code receives. It depends only on the sweep's seed and t.
func (c *Configs) seed(t tuner.Trial) uint64 {
	return rand.New(rand.NewPCG(c.Root, trialStream+uint64(t))).Uint64()
}

// widen switches to the space of a new spec, which must contain the old space.
func (c *Configs) widen(old, now *outbidv1.SweepSpec) error {
	a := &outbidv1.SweepSpec{Space: old.GetSpace(), Constraints: old.GetConstraints()}
	b := &outbidv1.SweepSpec{Space: now.GetSpace(), Constraints: now.GetConstraints()}
	if proto.Equal(a, b) {
		return nil
	}
	wider, err := space.Compile(now.GetSpace(), now.GetConstraints())
	if err != nil {
		return err
	}
	if err := c.Sampler.Widen(wider); err != nil {
		return err
	}
	c.Space, c.dry, c.past = wider, false, nil
	return c.readPoints(now)
}
