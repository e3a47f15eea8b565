package engine

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// CheckExtension returns an error that names the field if a sweep of a tuner of this kind cannot be extended from old
// settings to new ones.
func (k *Kind) CheckExtension(old, now tuner.Settings) error {
	was, is := old.Spec, now.Spec
	if a, b := tuner.NameOf(was.GetTuner()), tuner.NameOf(is.GetTuner()); a != b {
		return fmt.Errorf("tuner: %s cannot become %s; submit a new sweep", a, b)
	}
	if _, err := New(k, now); err != nil {
		return err
	}
	if a, b := was.GetMetric(), is.GetMetric(); a != b {
		return fmt.Errorf("metric: %q cannot become %q; submit a new sweep", a, b)
	}
	if a, b := was.GetMode(), is.GetMode(); a != b {
		return fmt.Errorf("mode: %q cannot become %q; submit a new sweep", a, b)
	}
	if a, b := was.GetLimits().GetTrials(), is.GetLimits().GetTrials(); b != 0 && (a == 0 || b < a) {
		return fmt.Errorf("limits.trials: %s cannot become %d; it can only be raised", bound(int64(a)), b)
	}
	if err := checkTunerExtension(old.WithDefaults(), now.WithDefaults()); err != nil {
		return err
	}
	return checkWider(was, is)
}

func bound(n int64) string {
	if n == 0 {
		return "no limit"
	}
	return fmt.Sprint(n)
}

// checkTunerExtension compares the settings of two tuners of the same kind one by one: some may grow, the others must be
// equal.
func checkTunerExtension(was, is *outbidv1.Tuner) error {
	if was.GetSeed() != is.GetSeed() {
		return fmt.Errorf("tuner.seed: %d cannot become %d; an extended sweep keeps its seed", was.GetSeed(), is.GetSeed())
	}
	a, kind := setting.Tuner(was)
	b, _ := setting.Tuner(is)
	for i := range a.Descriptor().Fields().Len() {
		f := a.Descriptor().Fields().Get(i)
		if a.Get(f).Equal(b.Get(f)) && a.Has(f) == b.Has(f) {
			continue
		}
		switch {
		case f.Name() == setting.Steps:
			from, to := a.Get(f).Int(), b.Get(f).Int()
			if from == 0 || to < from {
				return fmt.Errorf("tuner.%s.max_steps: %d cannot become %d; it can only be raised, and not from 0", kind, from, to)
			}
		case setting.Of(f).GetRaisable():
			if from, to := a.Get(f).Int(), b.Get(f).Int(); to < from {
				return fmt.Errorf("tuner.%s.%s: %d cannot become %d; it can only be raised", kind, f.Name(), from, to)
			}
		default:
			return fmt.Errorf("tuner.%s.%s: %v cannot become %v; submit a new sweep", kind, f.Name(), a.Get(f), b.Get(f))
		}
	}
	return nil
}

func checkWider(was, is *outbidv1.SweepSpec) error {
	old, err := space.Compile(was.GetSpace(), was.GetConstraints())
	if err != nil {
		return err
	}
	wider, err := space.Compile(is.GetSpace(), is.GetConstraints())
	if err != nil {
		return err
	}
	return wider.Contains(old)
}
