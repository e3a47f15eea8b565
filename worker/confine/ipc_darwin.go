package confine

func sweepIPC(uint32) error { return nil }
