//go:build !linux

package pluginhost

import "log/slog"

// withoutPrivileges calls start.
func withoutPrivileges(start func() error) error { return start() }

// confine does nothing, because only Linux can limit another process.
func confine(int, *slog.Logger) {}
