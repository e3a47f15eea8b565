//go:build !linux

package pluginhost

import "log/slog"

// withoutPrivileges calls start.
func withoutPrivileges(start func() error) error { return start() }

// confine does nothing: only Linux bounds another process.
func confine(int, *slog.Logger) {}
