package tuner

import (
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxPoints bounds the first configurations to try, and pointTries how often the rest of one is drawn anew until it meets
// the constraints.
const (
	maxPoints  = 10_000
	pointTries = 1_000
)

// readPoints reads the first configurations to try, and makes sure that each meets the constraints.
func (c *configs) readPoints(spec *outbidv1.SweepSpec) error {
	given := spec.GetTuner().GetPoints()
	if len(given) > maxPoints {
		return fmt.Errorf("tuner.points: %d points are too many; %d are allowed", len(given), maxPoints)
	}
	c.points = make([]space.Point, len(given))
	for i, g := range given {
		var err error
		if c.points[i], err = c.space.Point(fmt.Sprintf("tuner.points[%d]", i), g); err != nil {
			return err
		}
		if _, err := c.point(i); err != nil {
			return err
		}
	}
	return nil
}

// point is the configuration of the first ones to try that has a number. What it leaves open is drawn from randomness of
// its own, so that draws after it are what they are without it.
func (c *configs) point(i int) (Config, error) {
	rng := rand.New(rand.NewPCG(c.root, pointStream+uint64(i)))
	u := make([]float64, c.space.Dims())
	violated := ""
	for range pointTries {
		for j := range u {
			u[j] = rng.Float64()
		}
		config := c.space.Complete(c.points[i], u)
		if violated = c.space.Violated(config); violated == "" {
			return config, nil
		}
	}
	return nil, fmt.Errorf("tuner.points[%d]: breaks the constraint %q", i, violated)
}

// Points are the first configurations to try, complete.
func Points(spec *outbidv1.SweepSpec) ([]*structpb.Struct, error) {
	if len(spec.GetTuner().GetPoints()) == 0 {
		return nil, nil
	}
	s, err := space.Compile(spec.GetSpace(), spec.GetConstraints())
	if err != nil {
		return nil, err
	}
	c := &configs{space: s, root: spec.GetTuner().GetSeed()}
	if err := c.readPoints(spec); err != nil {
		return nil, err
	}
	list := make([]*structpb.Struct, len(c.points))
	for i := range c.points {
		config, err := c.point(i)
		if err != nil {
			return nil, err
		}
		if list[i], err = structpb.NewStruct(config); err != nil {
			return nil, fmt.Errorf("tuner.points[%d]: %w", i, err)
		}
	}
	return list, nil
}
