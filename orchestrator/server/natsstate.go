package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/bus"
)

// natsPatience is how long NATS may take to describe its state.
const natsPatience = 3 * time.Second

// diskLow is the free space below which JetStream may have failed, because it writes blocks of some MiB.
const diskLow = 16 << 20

// whyNoWrites returns why NATS does not accept writes, given its last answer, or "" if no problem is known.
func (s *Server) whyNoWrites(cause error) string {
	const mend = "free space there, restart NATS (JetStream does not write until then), then this server: nothing acknowledged is lost"
	if s.embedded != nil {
		if free, err := diskFree(s.cfg.Data); err == nil && free < diskLow {
			return fmt.Sprintf("the disk of %s is full (%s are free): free space there and restart this server: nothing "+
				"acknowledged is lost", s.cfg.Data, humanize.IBytes(free))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), natsPatience)
	defer cancel()
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return fmt.Sprintf("NATS at %s does not answer", s.natsURL)
	}
	if bus.StorageRefused(cause) { // it may accept some later
		return fmt.Sprintf("NATS at %s answers, but its JetStream does not accept writes (%v): usually its disk is full; %s", s.natsURL,
			cause, mend)
	}
	if err := bus.CheckWrites(ctx, s.nc); err != nil {
		return fmt.Sprintf("NATS at %s answers, but its JetStream does not accept writes (%v): usually its disk is full; %s", s.natsURL,
			err, mend)
	}
	return ""
}

// lapsed returns why this server no longer leads although no other server has taken over.
func (s *Server) lapsed() error {
	why := s.whyNoWrites(s.lead.Cause())
	if why == "" {
		why = fmt.Sprintf("NATS at %s did not answer for a while", s.natsURL)
	}
	return fmt.Errorf("%s, so this server no longer leads and has stopped; restart it once that is fixed: nothing is lost",
		why)
}

// diskFree returns the free bytes on the disk of a directory.
func diskFree(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

// isDeadLocalProcess reports whether a leader was a process of this machine that no longer exists.
func isDeadLocalProcess(l bus.Leader) bool {
	host, err := os.Hostname()
	if err != nil || l.PID <= 0 || l.Host != host {
		return false
	}
	return errors.Is(syscall.Kill(l.PID, 0), syscall.ESRCH)
}

// leadTaken returns the error for a server that could not become the leader: another server leads, or NATS does not
// accept writes.
func (s *Server) leadTaken(l bus.Leader, cause error) error {
	if why := s.whyNoWrites(cause); why != "" {
		return &UnreachableError{Msg: "this server cannot lead: " + why, Err: cause}
	}
	if isDeadLocalProcess(l) {
		return fmt.Errorf("the lead of process %d on this machine, which is dead, could not be taken over: %w", l.PID, cause)
	}
	return badField("Standby", "server %s%s leads since %s: stop it first, or start this one as a standby to take over when it is gone", l.ID,
		describeProcess(l), l.Since.Local().Format(time.DateTime))
}

// describeProcess describes a leader's process.
func describeProcess(l bus.Leader) string {
	if l.PID == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d on %s)", l.PID, l.Host)
}
