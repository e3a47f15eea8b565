package health

import (
	"errors"
	"time"
)

// DiskBusy is an error here: the kernel does not say.
func DiskBusy(string) (time.Duration, error) { return 0, errors.ErrUnsupported }

// Flush is an error here.
func Flush(string) error { return errors.ErrUnsupported }
