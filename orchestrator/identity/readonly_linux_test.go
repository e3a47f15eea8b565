package identity

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"golang.org/x/sys/unix"
)

// The keys of a pod are a Secret's volume, which is read-only: workers are removed there too.
func TestRevokeOnAReadOnlyVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a file system here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if _, err := MakeKeys(dir); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	keys, err := OpenKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := keys.Worker("n1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	token, err := keys.Revoke(worker.Public(), time.Now())
	if !errors.Is(err, ErrReadOnly) {
		t.Errorf("%v, want %v", err, ErrReadOnly)
	}
	claims, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		t.Fatal(err)
	}
	user := &jwt.UserClaims{ClaimsData: jwt.ClaimsData{Subject: worker.Public()}}
	if !claims.IsClaimRevoked(user) || !keys.claims.IsClaimRevoked(user) {
		t.Errorf("not revoked: %v, %v", claims.Revocations, keys.claims.Revocations)
	}
}
