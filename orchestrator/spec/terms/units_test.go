package terms

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour,
		"250ms": 250 * time.Millisecond, "0d1s": time.Second, "1.5h": 90 * time.Minute,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "0s", "0d", "90", "-1s", "-1d", "d", "1d-1h", "soon", "1w", "1e9h", "99999999d", "1d1d", " 1s"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestParseBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"4GiB": 4 << 30, "512MiB": 512 << 20, "500MB": 500_000_000, "1.5 GiB": 3 << 29, "100B": 100, "1tib": 1 << 40,
	} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "4", "4G", "0GiB", "-1GiB", "GiB", "B", "4 gigs", "99999999PiB", "1e3MB", "nanB"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
