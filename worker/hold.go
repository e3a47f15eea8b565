package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/worker/claim"
)

// quietWait is how long a trial waits for devices before its user gets a note, because workers of one machine often
// take turns.
const quietWait = time.Second

// waiting counts the trials that wait for devices that other processes of the machine use.
type waiting struct {
	mu     sync.Mutex
	trials int
	told   map[string]bool // the sweeps whose user got a note
}

// holdDevices claims a fork's devices until its training code is gone. It waits while another worker of this machine
// uses them.
func (s *starter) holdDevices(ctx context.Context, f *fork) error {
	if s.cfg.Share == nil {
		return nil
	}
	var timer *time.Timer
	told := make(chan struct{})
	release, err := s.cfg.Share.Take(ctx, f.body.GetDevices(), func(h *claim.Held) {
		if timer == nil {
			timer = time.AfterFunc(quietWait, func() {
				s.tellWaiting(f, h)
				close(told)
			})
		}
	})
	if timer != nil && !timer.Stop() {
		<-told
		s.endWaiting()
	}
	if err != nil {
		return err
	}
	f.files.atEnd(release)
	return nil
}

// tellWaiting reports which process uses a device that a trial waits for. The user gets one note for each sweep.
func (s *starter) tellWaiting(f *fork, h *claim.Held) {
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()
	s.waiting.trials++
	if s.cfg.Waits != nil {
		s.cfg.Waits(h.Error())
	}
	sweep := f.ref.GetSweep()
	if s.waiting.told[sweep] {
		return
	}
	if s.waiting.told == nil {
		s.waiting.told = map[string]bool{}
	}
	s.waiting.told[sweep] = true
	f.telemetry.logger().Info("a trial waits for a device", "device", h.What, "by", h.By.String())
	f.messages.note("warning", fmt.Sprintf("waits for %s, which a trial of %s uses; both take turns. To share cores declare slots: --devices cpu:2, "+
		"or OUTBID_DEVICES=cpu:2 where a program starts the server", h.What, h.By))
}

func (s *starter) endWaiting() {
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()
	s.waiting.trials--
	if s.waiting.trials == 0 && s.cfg.Waits != nil {
		s.cfg.Waits("")
	}
}
