package confine

// StepBehind does nothing: there are no control groups.
func StepBehind(string) error { return nil }
