package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// Outer is DiLoCo's outer optimizer (Douillard et al., 2023). It treats the common progress of all sources since their
// start as one gradient, and moves the initial weights by Nesterov's accelerated gradient.
type Outer struct {
	// Rate is the outer learning rate; with 1 the weights move as far as the mean. Momentum is the share of the
	// velocity that is kept.
	Rate, Momentum float64
	// Start is the common initial checkpoint of all sources.
	Start Source
	// Velocity is the state after the previous step, or nil for a velocity of 0.
	Velocity *Source
}

// outer is an Outer with open files.
type outer struct {
	Outer

	start, velocity *input
	// isVelocity is set if the average is the velocity instead of the weights.
	isVelocity bool
}

// WithOuter makes the average a step of an outer optimizer. It returns the new weights and the velocity, a file with
// the same tensors, for the next step. Each of them reads all sources. Weights are the floats, except those that are a
// layer's running statistics or an optimizer's state according to their names: these are averaged, and their velocity
// is 0. Weights and velocity are rounded to the tensors' types.
func (a *Average) WithOuter(o Outer) (weights, velocity *Average, err error) {
	if !(o.Rate > 0) || math.IsInf(o.Rate, 0) || !(o.Momentum >= 0 && o.Momentum < 1) {
		return nil, nil, fmt.Errorf("outer optimizer with rate %v and momentum %v: want a finite rate above 0, and a momentum of at least 0 and below 1", o.Rate, o.Momentum)
	}
	step := outer{Outer: o}
	if step.start, err = a.open(o.Start, len(a.sources)); err != nil {
		return nil, nil, err
	}
	all := append(slices.Clone(a.sources), step.start)
	if o.Velocity != nil {
		if step.velocity, err = a.open(*o.Velocity, len(all)); err != nil {
			return nil, nil, err
		}
		all = append(all, step.velocity)
	}
	lead := &safetensors.Header{Tensors: a.tensors}
	for _, gives := range []bool{false, true} {
		b := &Average{sources: a.sources, shares: a.shares, lead: a.lead, all: all, means: a.means}
		b.outer = &outer{Outer: o, start: step.start, velocity: step.velocity, isVelocity: gives}
		b.blocks.New = newBlock
		if gives {
			err = b.lay(lead, nil)
			velocity = b
		} else {
			b.header, b.tensors, b.size = a.header, a.tensors, a.size
			weights = b
		}
		if err != nil {
			return nil, nil, err
		}
		b.piece = pieceBytes(len(all))
	}
	return weights, velocity, nil
}

// open opens a file that must have the same tensors as the average.
func (a *Average) open(s Source, index int) (*input, error) {
	h, err := safetensors.ReadHeader(s.File, s.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	if err := match(&safetensors.Header{Tensors: a.tensors}, h); err != nil {
		return nil, fmt.Errorf("%w: %s and %s: %w", ErrMismatch, a.lead.Name, s.Name, err)
	}
	in := newInput(s, h, index)
	in.alike = in.isAligned(a)
	return in, nil
}

// isWeight reports, by its name, whether a tensor is learned, rather than the state of a layer or an optimizer.
func isWeight(t safetensors.Tensor) bool {
	kept := []string{
		"running_mean", "running_var", "moving_mean", "moving_variance", "exp_avg", "exp_avg_sq", "max_exp_avg_sq",
		"momentum_buffer", "square_avg", "acc_delta", "sum", "step", "optimizer", "optim", "opt", "opt_state", "ema",
	}
	return t.DType.IsFloat() && !slices.ContainsFunc(strings.FieldsFunc(t.Name, func(r rune) bool { return r == '.' || r == '/' }),
		func(part string) bool { return slices.Contains(kept, part) })
}

// step applies the outer optimizer to the mean of some weights.
func (o *outer) step(sum []float64, t safetensors.Tensor, from int64, read reader) error {
	if !isWeight(t) {
		if o.isVelocity {
			clear(sum)
		}
		return nil
	}
	n := int64(len(sum)) * t.DType.Size()
	raw := make([]byte, n)
	start, velocity := make([]float64, len(sum)), make([]float64, len(sum))
	got, err := read.bytes(o.start, t, from, raw)
	if err != nil {
		return err
	}
	add(start, got, 1, t.DType)
	if o.velocity != nil {
		if got, err = read.bytes(o.velocity, t, from, raw); err != nil {
			return err
		}
		add(velocity, got, 1, t.DType)
	}
	for k, mean := range sum {
		switch {
		case finite(mean) && finite(start[k]):
			gradient, v := start[k]-mean, 0.0
			if finite(velocity[k]) {
				v = o.Momentum * velocity[k]
			}
			v += gradient
			if sum[k] = start[k] - o.Rate*(gradient+o.Momentum*v); o.isVelocity {
				sum[k] = v
			}
		case o.isVelocity: // infinities, as in an attention mask, do not move
			sum[k] = 0
		}
	}
	return nil
}
