package engine

import (
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxPoints limits the number of initial configurations (tuner.points). pointTries limits how often the open parameters
// of a point are redrawn until it meets the constraints.
const (
	maxPoints  = 10_000
	pointTries = 1_000
)

// readPoints reads the initial configurations and checks that each can meet the constraints.
func (c *Configs) readPoints(spec *outbidv1.SweepSpec) error {
	given := spec.GetTuner().GetPoints()
	if len(given) > maxPoints {
		return fmt.Errorf("tuner.points: at most %d points are allowed, got %d", maxPoints, len(given))
	}
	c.Points = make([]space.Point, len(given))
	for i, g := range given {
		var err error
		if c.Points[i], err = c.Space.Point(fmt.Sprintf("tuner.points[%d]", i), g); err != nil {
			return err
		}
		if _, err := c.point(i); err != nil {
			return err
		}
	}
	return nil
}

// point returns the i-th initial configuration. Parameters that it leaves open are drawn from a separate random stream,
// so that they do not influence later draws.
func (c *Configs) point(i int) (tuner.Config, error) {
	rng := rand.New(rand.NewPCG(c.Root, pointStream+uint64(i)))
	u := make([]float64, c.Space.Dims())
	violated := ""
	for range pointTries {
		for j := range u {
			u[j] = rng.Float64()
		}
		config := c.Space.Complete(c.Points[i], u)
		if violated = c.Space.Violated(config); violated == "" {
			return config, nil
		}
	}
	return nil, fmt.Errorf("tuner.points[%d]: breaks the constraint %q", i, violated)
}

// Points returns the initial configurations with all parameters filled in.
func Points(spec *outbidv1.SweepSpec) ([]*structpb.Struct, error) {
	if len(spec.GetTuner().GetPoints()) == 0 {
		return nil, nil
	}
	s, err := space.Compile(spec.GetSpace(), spec.GetConstraints())
	if err != nil {
		return nil, err
	}
	c := &Configs{Space: s, Root: spec.GetTuner().GetSeed()}
	if err := c.readPoints(spec); err != nil {
		return nil, err
	}
	list := make([]*structpb.Struct, len(c.Points))
	for i := range c.Points {
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
