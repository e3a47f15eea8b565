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

// User is who a trial runs as.
type User struct {
	UID, GID uint32
	// Groups beside GID.
	Groups []uint32
	Name   string
	// own says that nothing else runs as this user, on the whole machine.
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

// userSource gives users to trials; nil if they run as the worker's.
type userSource interface {
	take(ctx context.Context) (*User, error)
	// anyone is a user with the rights that all of them have.
	anyone() *User
}

// Ranges of user ids that no account has: one that systemd leaves to nobody, and for containers whose ids end at 65536
// one between its own ranges.
const (
	wideFirst, wideCount     = 1_900_000_000, 10_000_000
	narrowFirst, narrowCount = 53_000, 7_000
)

// ErrCannotSwitch says that the worker may not start processes as other users.
var ErrCannotSwitch = errors.New("this worker may not run trials as another user than its own: that takes root, or the " +
	"capabilities CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL")

// CanSwitch says whether this process may start processes as other users; the error is ErrCannotSwitch.
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

// capabilities are those in effect for this process.
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

// freeRange finds user ids for trials among those that this process's user namespace has.
func freeRange() (idRange, error) {
	for _, r := range []idRange{{wideFirst, wideCount}, {narrowFirst, narrowCount}} {
		if mapped("/proc/self/uid_map", r) && mapped("/proc/self/gid_map", r) {
			return r, nil
		}
	}
	return idRange{}, fmt.Errorf("%w, and user ids for them: this container has too few (see /proc/self/uid_map)", ErrCannotSwitch)
}

// mapped says whether a user namespace has all ids of a range.
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

// openUsers makes the source of users that the configuration names.
func openUsers(_ context.Context, cfg Config) (userSource, error) {
	if cfg.User == None {
		return nil, nil //nolint:nilnil // there is none
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

// named is a user with an account.
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
		return nil, fmt.Errorf("user %q of trials: it may be neither root nor the worker's own; %q takes one for each trial",
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

// maxTries bounds the search for a user id that nobody holds.
const maxTries = 1000

// take draws a user id, so that what one trial may leave somewhere is hardly ever another's, and claims it on the whole
// machine.
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
		if _, err := user.LookupId(fmt.Sprint(id)); err == nil { // an account after all
			if err := c.Release(); err != nil {
				return nil, err
			}
			continue
		}
		return &User{UID: id, GID: id, Groups: a.groups, Name: fmt.Sprint("outbid-", id), own: true, claim: c}, nil
	}
	return nil, errors.New("no user id is free")
}
