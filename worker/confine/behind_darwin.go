package confine

// EnterIdleGroup does nothing, because this system does not have control groups.
func EnterIdleGroup(string) error { return nil }

// WatchStarvation does nothing.
func WatchStarvation(string, int) (stop func()) { return func() {} }
