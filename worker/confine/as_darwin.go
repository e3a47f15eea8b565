package confine

import "os"

// as calls f: no thread has another user's rights here, and there is no user for trials (see CanSwitch).
func (u *User) as(_ *spaces, f func() error) error {
	if u == nil {
		return f()
	}
	return ErrCannotSwitch
}

// linkOpen is an error: an open file cannot be given another name here.
func linkOpen(*os.File, string) error { return os.ErrInvalid }

// dropAmbient does nothing: there are no capabilities.
func dropAmbient() error { return nil }

// gainNothing is never called: there is no user for trials.
func gainNothing() error { return ErrCannotSwitch }
