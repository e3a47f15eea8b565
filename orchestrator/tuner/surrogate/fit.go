package surrogate

import (
	"math"
)

// The priors of the logarithms are normal. The one of the lengths matters most: its mean increases with the number of
// parameters because distances do (Hvarfner, Hellsten and Nardi, "Vanilla Bayesian Optimization Performs Great in High
// Dimensions", ICML 2024).
const (
	scaleShift, scaleSpread          = -0.3, 0.9
	amplitudeCentre, amplitudeSpread = 0.0, 0.7
	noiseCentre, noiseSpread         = -5.0, 1.5
)

// The bounds of the logarithms.
const (
	leastScale, mostScale = -5.0, 5.0
	leastNoise, mostNoise = -13.0, 1.0
	mostAmplitude         = 4.0
)

// A prior holds the centres and spreads of the logarithms of the lengths, the amplitude and the noise.
type prior struct{ centre, spread []float64 }

// priorOf returns the prior of a sweep. Its lengths are expected to be between the usual ones and those of earlier sweeps.
func priorOf(groups int, past []*Past) (p prior) {
	for g := range groups {
		usual := 0.5*math.Log(float64(groups)) + scaleShift
		sum, n := 0.0, 0.0
		for _, q := range past {
			if !q.lacks[g] {
				sum, n = sum+q.scales[g]-usual, n+1
			}
		}
		p.centre = append(p.centre, usual+float64(scalesShare*sum)/max(n, 1))
		p.spread = append(p.spread, scaleSpread)
	}
	p.centre, p.spread = append(p.centre, amplitudeCentre, noiseCentre), append(p.spread, amplitudeSpread, noiseSpread)
	return p
}

func clampHyper(v []float64) {
	n := len(v) - 2
	for g := range n {
		v[g] = min(max(v[g], leastScale), mostScale)
	}
	v[n] = min(max(v[n], -mostAmplitude), mostAmplitude)
	v[n+1] = min(max(v[n+1], leastNoise), mostNoise)
}

// A posterior is a Gaussian process conditioned on costs, for one choice of settings.
type posterior struct {
	h hyper
	// inv is the inverse of the covariance's Cholesky factor, alpha the inverse of the covariance times the costs.
	inv   lower
	alpha []float64
}

// condition computes the posterior, or returns false if the covariance is not positive definite.
func condition(p pairs, y []float64, h hyper) (posterior, float64, bool) {
	n, w := len(y), h.weights()
	amplitude, noise := math.Exp(h.amplitude), math.Exp(h.noise)
	l := newLower(n)
	k := 0
	for i := range n {
		row := l.row(i)
		for j := range i {
			m, _ := matern(p.at(k, w))
			row[j] = float64(amplitude * m)
			k++
		}
		row[i] = amplitude + noise
	}
	for i, c := range p.shared {
		l.a[i] += c
	}
	if !l.cholesky() {
		return posterior{}, 0, false
	}
	half := 0.0
	for i := range n {
		half += math.Log(l.row(i)[i])
	}
	inv := l.inverse()
	z := inv.times(y)
	return posterior{h: h, inv: inv, alpha: inv.timesT(z)}, 0.5*dot(z, z) + half, true
}

// loss returns the negative logarithm of the posterior density of the settings and writes its gradient.
func loss(p pairs, y []float64, prior prior, v, grad []float64) float64 {
	h := hyperOf(v)
	post, value, ok := condition(p, y, h)
	if !ok {
		return math.Inf(1)
	}
	for i := range v {
		d := (v[i] - prior.centre[i]) / prior.spread[i]
		value += float64(d*d) / 2
		grad[i] = d / prior.spread[i]
	}
	// d loss / d theta = tr((K^-1 - alpha alpha^T) dK / d theta) / 2 (Rasmussen and Williams 2006, equation 5.9).
	kinv, w := post.inv.gram(), h.weights()
	amplitude, noise := math.Exp(h.amplitude), math.Exp(h.noise)
	groups, k := len(w), 0
	sums := make([]float64, groups)
	signal, trace := 0.0, 0.0
	for i := range y {
		row := kinv.row(i)
		for j := range i {
			m, slope := matern(p.at(k, w))
			wij := float64(amplitude * (row[j] - float64(post.alpha[i]*post.alpha[j])))
			signal += float64(wij * m)
			t := float64(wij * slope)
			for g := range w {
				sums[g] += float64(t * p.squares[g][k])
			}
			k++
		}
		trace += row[i] - float64(post.alpha[i]*post.alpha[i])
	}
	for g := range sums {
		grad[g] += float64(sums[g] * w[g]) // a factor of 2 for the pair's two entries cancels the 1/2
	}
	grad[groups] += signal + float64(amplitude*trace)/2
	grad[groups+1] += float64(noise*trace) / 2
	return value
}

// fit returns the most probable settings found from start in at most this many evaluations.
func fit(p pairs, y []float64, prior prior, start hyper, evaluations int) hyper {
	f := func(v, grad []float64) float64 { return loss(p, y, prior, v, grad) }
	v := start.vector()
	clampHyper(v)
	return hyperOf(minimise(f, v, evaluations))
}

// kept is the number of steps that L-BFGS remembers.
const kept = 8

// minimise is L-BFGS (Nocedal and Wright, "Numerical Optimization", 2006, algorithms 7.4 and 7.5) within the bounds of
// the settings. Its line search divides the step by three until the loss decreases enough.
func minimise(f func(v, grad []float64) float64, v []float64, evaluations int) []float64 {
	n := len(v)
	grad := make([]float64, n)
	value := f(v, grad)
	var steps, changes [][]float64
	for used := 1; used < evaluations && !math.IsInf(value, 0); {
		dir := direction(grad, steps, changes)
		slope := dot(dir, grad)
		if !(slope < 0) {
			steps, changes = nil, nil
			dir = direction(grad, nil, nil)
			slope = dot(dir, grad)
		}
		size := 1.0
		if longest := largest(dir); longest > 2 {
			size = 2 / longest // no setting changes by more than a factor of e^2 at once
		}
		next, nextGrad := make([]float64, n), make([]float64, n)
		better := false
		for ; used < evaluations; size /= 3 {
			for i := range next {
				next[i] = v[i] + float64(size*dir[i])
			}
			clampHyper(next)
			used++
			if got := f(next, nextGrad); got <= value+float64(1e-4*size*slope) {
				better = value-got > 1e-5
				s, c := make([]float64, n), make([]float64, n)
				for i := range s {
					s[i], c[i] = next[i]-v[i], nextGrad[i]-grad[i]
				}
				if dot(s, c) > 1e-10 {
					steps, changes = append(steps, s), append(changes, c)
					if len(steps) > kept {
						steps, changes = steps[1:], changes[1:]
					}
				}
				v, grad, value = next, nextGrad, got
				break
			}
			if size < 1e-4 {
				return v
			}
		}
		if !better {
			break
		}
	}
	return v
}

func largest(v []float64) (most float64) {
	for _, x := range v {
		most = max(most, math.Abs(x))
	}
	return most
}

// direction is the two-loop recursion of L-BFGS.
func direction(grad []float64, steps, changes [][]float64) []float64 {
	q := make([]float64, len(grad))
	for i, g := range grad {
		q[i] = -g
	}
	a := make([]float64, len(steps))
	for k := len(steps) - 1; k >= 0; k-- {
		a[k] = dot(steps[k], q) / dot(steps[k], changes[k])
		for i := range q {
			q[i] -= float64(a[k] * changes[k][i])
		}
	}
	if k := len(steps) - 1; k >= 0 {
		scale := dot(steps[k], changes[k]) / dot(changes[k], changes[k])
		for i := range q {
			q[i] *= scale
		}
	}
	for k := range steps {
		b := dot(changes[k], q) / dot(steps[k], changes[k])
		for i := range q {
			q[i] += float64((a[k] - b) * steps[k][i])
		}
	}
	return q
}
