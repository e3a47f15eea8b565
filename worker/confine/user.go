package confine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/outbid-dev/outbid/worker/claim"
)

// User is the user that a trial runs as.
type User struct {
	UID, GID uint32
	// Groups are further groups besides GID.
	Groups []uint32
	Name   string
	// own is set if no other code on the whole machine runs as this user.
	own   bool
	claim *claim.Claim
}

func (u *User) credential() *syscall.Credential {
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

func (u *User) release() error {
	if u.claim == nil {
		return nil
	}
	return u.claim.Release()
}

// userSource assigns users to trials; nil if trials run as the worker's user.
type userSource interface {
	take(ctx context.Context) (*User, error)
	// anyone returns a user with the rights that all of them have.
	anyone() *User
}

// Ranges of user ids that no account has. systemd does not assign the first; the second is between systemd's own
// ranges, for containers whose ids end at 65536.
const (
	wideFirst, wideCount     = 1_900_000_000, 10_000_000
	narrowFirst, narrowCount = 53_000, 7_000
)

// ErrCannotSwitch is returned if the worker cannot start processes as other users.
var ErrCannotSwitch = errors.New("this worker cannot run trials as other users than its own: that needs root or the " +
	"capabilities CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL")

// CanSwitch returns nil if this process can start processes as other users; otherwise the error wraps
// ErrCannotSwitch.
func CanSwitch() error {
	if runtime.GOOS != "linux" {
		return ErrCannotSwitch
	}
	caps, err := capabilities()
	if err != nil {
		return err
	}
	const chown, kill, setgid, setuid = 0, 5, 6, 7
	for _, bit := range []uint{chown, kill, setgid, setuid} {
		if caps&(1<<bit) == 0 {
			return ErrCannotSwitch
		}
	}
	_, err = freeRange()
	return err
}

// capabilities returns the effective capabilities of this process.
func capabilities() (uint64, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, fmt.Errorf("read the worker's capabilities: %w", err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", self.PID))
	if err != nil {
		return 0, fmt.Errorf("read the worker's capabilities: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseUint(strings.TrimSpace(line), 16, 64)
}

// idRange is a range of user ids.
type idRange struct{ first, count uint32 }

// freeRange returns a range of user ids for trials that this process's user namespace has.
func freeRange() (idRange, error) {
	for _, r := range []idRange{{wideFirst, wideCount}, {narrowFirst, narrowCount}} {
		if mapped("/proc/self/uid_map", r) && mapped("/proc/self/gid_map", r) {
			return r, nil
		}
	}
	return idRange{}, fmt.Errorf("%w, and enough user ids: this container has too few (see /proc/self/uid_map)", ErrCannotSwitch)
}

// mapped reports whether a user namespace has all ids of a range.
func mapped(path string, r idRange) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var first, outside, count uint64
		if _, err := fmt.Sscan(lines.Text(), &first, &outside, &count); err != nil {
			return false
		}
		if uint64(r.first) >= first && uint64(r.first)+uint64(r.count) <= first+count {
			return true
		}
	}
	return false
}

// openUsers returns the configured source of users.
func openUsers(_ context.Context, cfg Config) (userSource, error) {
	if cfg.User == None {
		return nil, nil //nolint:nilnil // None: trials run as the worker's user
	}
	if err := CanSwitch(); err != nil {
		return nil, err
	}
	var groups []uint32
	for _, name := range cfg.Groups {
		g, err := user.LookupGroup(name)
		if err != nil {
			return nil, fmt.Errorf("group %q of trials: there is no such group on this machine", name)
		}
		id, err := strconv.ParseUint(g.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("group %q of trials: %w", name, err)
		}
		groups = append(groups, uint32(id))
	}
	if cfg.User == Auto {
		ids, err := freeRange()
		return &autoUsers{ids: ids, groups: groups, dir: cfg.Dir}, err
	}
	u, err := named(cfg.User, groups)
	return oneUser{u}, err
}

// named returns the user of an account.
func named(name string, groups []uint32) (*User, error) {
	account, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("user %q of trials: there is no such user on this machine; %q needs none", name, Auto)
	}
	uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
	switch {
	case err1 != nil || err2 != nil:
		return nil, fmt.Errorf("user %q of trials has no numeric ids", name)
	case uid == 0 || int(uid) == os.Geteuid():
		return nil, fmt.Errorf("user %q of trials: must be neither root nor the worker's user; %q gives each trial its own",
			name, Auto)
	}
	return &User{UID: uint32(uid), GID: uint32(gid), Groups: groups, Name: account.Username}, nil
}

// oneUser gives every trial the same user.
type oneUser struct{ user *User }

func (o oneUser) take(context.Context) (*User, error) {
	u := *o.user
	return &u, nil
}

func (o oneUser) anyone() *User { return o.user }

// autoUsers gives every trial another user.
type autoUsers struct {
	ids    idRange
	groups []uint32
	dir    string
}

func (a *autoUsers) anyone() *User {
	return &User{UID: a.ids.first, GID: a.ids.first, Groups: a.groups, Name: "outbid"}
}

// maxTries limits the search for a free user id.
const maxTries = 1000

// take picks a random user id, so that a trial hardly ever finds files of an earlier trial with its id, and claims it
// on the whole machine.
func (a *autoUsers) take(ctx context.Context) (*User, error) {
	for range maxTries {
		id := a.ids.first + rand.Uint32N(a.ids.count)
		c, err := claim.Take(ctx, fmt.Sprint("user/", id), a.dir, time.Now())
		if _, held := errors.AsType[*claim.Held](err); held {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := user.LookupId(fmt.Sprint(id)); err == nil { // an account has the id
			if err := c.Release(); err != nil {
				return nil, err
			}
			continue
		}
		return &User{UID: id, GID: id, Groups: a.groups, Name: fmt.Sprint("outbid-", id), own: true, claim: c}, nil
	}
	return nil, errors.New("no user id is free")
}
