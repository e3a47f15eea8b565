package uptime

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSince(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	m := Open(filepath.Join(t.TempDir(), "uptime.json"))
	boot, up := "first", time.Hour
	var broken error
	m.now = func() (string, time.Duration, error) { return boot, up, broken }
	expect := func(what string, at time.Time, want time.Duration, known bool) {
		t.Helper()
		got, ok, err := m.Since(at)
		if err != nil || got != want || ok != known {
			t.Errorf("%s: %s, %t, want %s, %t: %v", what, got, ok, want, known, err)
		}
	}
	expect("nothing noted", noon, 0, false)
	if err := m.Note(noon); err != nil {
		t.Fatal(err)
	}
	up += 10 * time.Minute
	expect("ten minutes later", noon, 10*time.Minute, true)
	expect("of what was three minutes after the note", noon.Add(3*time.Minute), 7*time.Minute, true)
	boot, up = "second", 2*time.Hour
	expect("the machine has started anew", noon, 0, false)
	boot, up = "first", time.Minute
	expect("a clock that goes back", noon, 0, false)
	broken, up = errors.New("no such clock"), 3*time.Hour
	expect("a machine without the clock", noon, 0, false)
	if m.Note(noon) == nil {
		t.Error("noted without a clock")
	}
	broken = nil
	if err := os.WriteFile(m.path, []byte(`{"boot":"fir`), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("a note cut short", noon, 0, false)
}

func TestThisMachineHasAnUptime(t *testing.T) {
	t.Parallel()
	m := Open(filepath.Join(t.TempDir(), "uptime.json"))
	if err := m.Note(time.Unix(1000, 0)); err != nil {
		t.Skipf("this machine has no clock that counts from its start: %v", err)
	}
	if got, ok, err := m.Since(time.Unix(990, 0)); err != nil || !ok || got < 10*time.Second || got > time.Minute {
		t.Errorf("%s, %t, %v", got, ok, err)
	}
}
