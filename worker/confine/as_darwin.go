package confine

import "os"

// as calls f if u is nil. Otherwise it returns an error, because threads cannot have another user's rights here.
func (u *User) as(_ *spaces, f func() error) error {
	if u == nil {
		return f()
	}
	return ErrCannotSwitch
}

// linkOpen returns an error, because an open file cannot get another name here.
func linkOpen(*os.File, string) error { return os.ErrInvalid }

// dropAmbient does nothing, because this system does not have capabilities.
func dropAmbient() error { return nil }

// gainNothing is never called, because trials do not have their own users here.
func gainNothing() error { return ErrCannotSwitch }
