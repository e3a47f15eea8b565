package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

func connect(t *testing.T) *nats.Conn {
	t.Helper()
	s, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	nc, err := bus.Connect(t.Context(), bus.ConnConfig{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func openVault(t *testing.T, nc *nats.Conn, key byte) *Vault {
	t.Helper()
	v, err := Open(t.Context(), nc, Config{Key: bytes.Repeat([]byte{key}, 32), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func set(t *testing.T, v *Vault, tenant, name, value string) {
	t.Helper()
	if _, err := v.Set(t.Context(), tenant, name, value, "ann"); err != nil {
		t.Fatal(err)
	}
}

func TestVaultKeepsSecretsOverAReopening(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	v := openVault(t, nc, 1)
	set(t, v, "vision", "wandb", "old")
	set(t, v, "vision", "wandb", "new")
	set(t, v, "vision", "a-b_c", "two")
	set(t, v, "speech", "wandb", "theirs")
	v = openVault(t, nc, 1)
	env, err := v.Resolve("vision", map[string]string{"W": "wandb", "X": "a-b_c"})
	if err != nil || env["W"] != "new" || env["X"] != "two" {
		t.Errorf("%v, %v", env, err)
	}
	if list := v.List("vision"); len(list) != 2 || list[0].Name != "a-b_c" || list[1].SetBy != "ann" || list[1].SetAt.IsZero() {
		t.Errorf("%v", list)
	}
	if _, err := v.Resolve("nobody", map[string]string{"W": "wandb"}); !errors.Is(err, ErrMissing) {
		t.Errorf("another tenant's secret: %v", err)
	}
	if _, err := openVault(t, nc, 2).Resolve("vision", map[string]string{"W": "wandb"}); err == nil || errors.Is(err, ErrMissing) {
		t.Errorf("with another key: %v", err)
	}
}

func TestVaultBindsAValueToItsTenantAndName(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	v := openVault(t, nc, 1)
	set(t, v, "speech", "wandb", "theirs")
	entry, err := v.kv.Get(t.Context(), "speech/wandb")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.kv.Put(t.Context(), "vision/wandb", entry.Value()); err != nil {
		t.Fatal(err)
	}
	if env, err := openVault(t, nc, 1).Resolve("vision", map[string]string{"W": "wandb"}); err == nil {
		t.Errorf("a value was moved to another tenant: %v", env)
	}
}

func TestARemovedSecretLeavesNothingInTheBucket(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	v := openVault(t, nc, 1)
	set(t, v, "vision", "wandb", "value")
	if err := v.Delete(t.Context(), "vision", "wandb"); err != nil {
		t.Fatal(err)
	}
	if err := v.Delete(t.Context(), "vision", "wandb"); !errors.Is(err, ErrMissing) {
		t.Errorf("removed twice: %v", err)
	}
	status, err := v.kv.Status(t.Context())
	if err != nil || status.Values() != 0 || v.Has("vision", "wandb") || openVault(t, nc, 1).Has("vision", "wandb") {
		t.Errorf("%d entries are left: %v", status.Values(), err)
	}
}

func TestADamagedSecretKeepsNoOtherFromBeingRead(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	v := openVault(t, nc, 1)
	set(t, v, "vision", "good", "value")
	if _, err := v.kv.Put(t.Context(), "speech/bad", []byte("{not JSON")); err != nil {
		t.Fatal(err)
	}
	v = openVault(t, nc, 1)
	if env, err := v.Resolve("vision", map[string]string{"A": "good"}); err != nil || env["A"] != "value" {
		t.Errorf("%v, %v", env, err)
	}
	if _, err := v.Resolve("speech", map[string]string{"A": "bad"}); err == nil || !strings.Contains(err.Error(), "set it again") {
		t.Errorf("the damaged one: %v", err)
	}
	set(t, v, "speech", "bad", "mended")
	if err := v.Delete(t.Context(), "speech", "bad"); err != nil {
		t.Error(err)
	}
}

// TestVaultReadsWhatAnotherWrote checks that the next load reads what a previous leader wrote.
func TestVaultReadsWhatAnotherWrote(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	leads := openVault(t, nc, 1)
	led := openVault(t, nc, 1)
	set(t, led, "vision", "late", "value")
	set(t, led, "vision", "other", "value")
	if err := leads.load(t.Context()); err != nil || !leads.Has("vision", "late") {
		t.Errorf("not read: %v", err)
	}
	if err := led.Delete(t.Context(), "vision", "late"); err != nil {
		t.Fatal(err)
	}
	if err := leads.load(t.Context()); err != nil || leads.Has("vision", "late") || !leads.Has("vision", "other") {
		t.Errorf("the removal was not read: %v", err)
	}
}

func TestATenantHasSoManySecretsAndCanReplaceThem(t *testing.T) {
	t.Parallel()
	v := openVault(t, connect(t), 1)
	for i := range limits.Secrets {
		set(t, v, "vision", fmt.Sprintf("s%d", i), "value")
	}
	if _, err := v.Set(context.Background(), "vision", "more", "value", "ann"); !errors.Is(err, state.ErrLimit) {
		t.Errorf("one more: %v", err)
	}
	set(t, v, "vision", "s0", "other")
	set(t, v, "speech", "more", "value")
}
