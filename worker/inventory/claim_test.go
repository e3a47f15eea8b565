package inventory

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/worker/claim"
)

// Devices that exist are held by one worker at a time; declared ones by every worker that declares them.
func TestClaims(t *testing.T) {
	t.Parallel()
	m, err := find("gpu,cpu:2", twoGPUs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Names { // names only of this test
		if m.Names[i] != "" {
			m.Names[i] += t.TempDir()
		}
	}
	first, err := claim.Take(t.Context(), m.Names[0], "/first", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var held []*claim.Held
	got, release, err := m.Claim(t.Context(), "/second", func(h *claim.Held) { held = append(held, h) })
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Devices) != 3 || got.Devices[0].GetUuid() != "GPU-b" || got.Devices[0].GetIndex() != 0 || len(got.Links) != 0 {
		t.Errorf("offers %v, %v", got.Devices, got.Links)
	}
	if len(held) != 1 || held[0].By.Dir != "/first" || held[0].By.PID != os.Getpid() || held[0].By.Since.IsZero() {
		t.Errorf("told %v", held)
	}
	if err := errors.Join(first.Release(), release()); err != nil {
		t.Error(err)
	}
}

// A worker without a free device reports which process it waits for, and continues when that has ended.
func TestClaimsWait(t *testing.T) {
	t.Parallel()
	m, err := find("gpu", twoGPUs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Names {
		m.Names[i] += t.TempDir()
	}
	_, release, err := m.Claim(t.Context(), "/first", nil)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	got, again, err := m.Claim(t.Context(), "/second", func(*claim.Held) {
		if told++; told == 2 {
			if err := release(); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil || len(got.Devices) != 2 || told != 2 {
		t.Fatalf("%v, %v, told %d times", got.Devices, err, told)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := m.Claim(ctx, "/third", func(*claim.Held) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("it waits although the device is free: %v", err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}
