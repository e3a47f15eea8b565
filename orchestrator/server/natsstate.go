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

// natsPatience is how long NATS is asked what ails it.
const natsPatience = 3 * time.Second

// diskLow is so little room that JetStream may have found none: it writes blocks of some MiB.
const diskLow = 16 << 20

// whyNoWrites says why NATS takes no writes, given what it answered last; empty if nothing is known to be wrong with it.
func (s *Server) whyNoWrites(cause error) string {
	const mend = "make room there, start NATS again (JetStream writes nothing until then), then this server: nothing acknowledged is lost"
	if s.embedded != nil {
		if free, err := diskFree(s.cfg.Data); err == nil && free < diskLow {
			return fmt.Sprintf("the disk of %s is full (%s are free): make room there and start this server again: nothing "+
				"acknowledged is lost", s.cfg.Data, humanize.IBytes(free))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), natsPatience)
	defer cancel()
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return fmt.Sprintf("NATS at %s does not answer", s.natsURL)
	}
	if bus.StorageRefused(cause) { // it may take some again meanwhile
		return fmt.Sprintf("NATS at %s answers, but its JetStream takes no writes (%v): as a rule its disk is full; %s", s.natsURL,
			cause, mend)
	}
	if err := bus.CheckWrites(ctx, s.nc); err != nil {
		return fmt.Sprintf("NATS at %s answers, but its JetStream takes no writes (%v): as a rule its disk is full; %s", s.natsURL,
			err, mend)
	}
	return ""
}

// lapsed says why this orchestrator leads no more though nobody else has taken over.
func (s *Server) lapsed() error {
	why := s.whyNoWrites(s.lead.Cause())
	if why == "" {
		why = fmt.Sprintf("NATS at %s did not answer for a while", s.natsURL)
	}
	return fmt.Errorf("%s, so this orchestrator leads no more and has stopped; start it again once that is mended: nothing is lost",
		why)
}

// diskFree is how many bytes may still be written below a directory.
func diskFree(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

// deadHere says whether a leader was a process of this machine that is no more.
func deadHere(l bus.Leader) bool {
	host, err := os.Hostname()
	if err != nil || l.PID <= 0 || l.Host != host {
		return false
	}
	return errors.Is(syscall.Kill(l.PID, 0), syscall.ESRCH)
}

// leadTaken is the error of who waited for the lead in vain: somebody has it, or nobody can write that they do.
func (s *Server) leadTaken(l bus.Leader, cause error) error {
	if why := s.whyNoWrites(cause); why != "" {
		return &UnreachableError{Msg: "this orchestrator cannot lead: " + why, Err: cause}
	}
	if deadHere(l) {
		return fmt.Errorf("the lead of process %d on this machine, which is dead, could not be taken over: %w", l.PID, cause)
	}
	return badField("Standby", "orchestrator %s%s leads since %s: stop it first, or stand by to take over when it is gone", l.ID,
		process(l), l.Since.Local().Format(time.DateTime))
}

// process names a leader's process.
func process(l bus.Leader) string {
	if l.PID == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d on %s)", l.PID, l.Host)
}
