package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// livePresenter redraws a few lines in place. It never clears the screen and leaves what was above alone.
type livePresenter struct {
	w     io.Writer
	term  terminal
	now   func() time.Time
	drawn int
	last  time.Time
	notes noteLog
	// recent are the newest notes, oldest first.
	recent []*outbidv1.SweepNote
}

const (
	// redrawEvery bounds how often the lines are drawn.
	redrawEvery = 100 * time.Millisecond
	// recentNotes is how many notes stay on the screen.
	recentNotes = 4
)

func (lp *livePresenter) update(p *progress, u *outbidv1.WatchSweepResponse) error {
	lp.recent = append(lp.recent, lp.notes.fresh(p.sweep.GetNotes())...)
	lp.recent = lp.recent[max(0, len(lp.recent)-recentNotes):]
	now := lp.now()
	if u != nil && now.Sub(lp.last) < redrawEvery && !p.over() {
		return nil
	}
	lp.last = now
	columns, rows := lp.term.size()
	lines := liveLines(p, lp.recent, now, columns, rows-2)
	return lp.draw(lines, columns)
}

// draw replaces the lines of before.
func (lp *livePresenter) draw(lines []string, columns int) error {
	var b strings.Builder
	b.WriteString("\x1b[?25l") // no cursor while drawing
	if lp.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", lp.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r\x1b[2K" + lp.paint(shorten(line, columns-1)) + "\n")
	}
	// What was drawn below the new end is wiped.
	b.WriteString("\x1b[J\x1b[?25h")
	lp.drawn = len(lines)
	_, err := io.WriteString(lp.w, b.String())
	return err
}

// paint makes the first word of a line stand out.
func (lp *livePresenter) paint(line string) string {
	if !lp.term.colour || line == "" || line[0] == ' ' {
		return line
	}
	word, rest, _ := strings.Cut(line, " ")
	return "\x1b[1m" + word + "\x1b[0m " + rest
}

func (lp *livePresenter) hide() {
	if lp.drawn > 0 {
		_, _ = fmt.Fprintf(lp.w, "\x1b[%dA\r\x1b[J", lp.drawn)
	}
	lp.drawn = 0
}

func (lp *livePresenter) result(p *progress) error {
	lp.hide()
	for _, n := range lp.recent {
		if n.GetLevel() != "info" && n.GetLevel() != "" {
			_, _ = fmt.Fprintln(lp.w, noteLine(n))
		}
	}
	_, err := io.WriteString(lp.w, strings.Join(resultLines(p, lp.now()), "\n")+"\n")
	return err
}

// liveLines draws a sweep's progress in at most rows lines.
func liveLines(p *progress, notes []*outbidv1.SweepNote, now time.Time, columns, rows int) []string {
	s := p.sweep
	lines := []string{
		fmt.Sprintf("%-8s %s, %s", clean(s.GetId()), sweepState(s.GetState()), formatDuration(elapsedSeconds(s, now))),
		"trials   " + trialsLine(s),
		"steps    " + stepsLine(p, columns),
		"best     " + bestLine(s),
	}
	if !p.lost.IsZero() {
		lines = append(lines, fmt.Sprintf("server   does not answer since %s; trying again",
			formatDuration(now.Sub(p.lost).Seconds())))
	}
	if w := s.GetWaiting(); w != "" {
		lines = append(lines, "waiting  "+clean(w))
	}
	running := p.running()
	room := max(1, rows-len(lines)-len(notes)-1)
	if len(running) > room {
		room = max(1, room-1)
	}
	for i, t := range running[:min(len(running), room)] {
		lead := "         "
		if i == 0 {
			lead = "running  "
		}
		lines = append(lines, lead+runningLine(s, t))
	}
	if rest := len(running) - room; rest > 0 {
		lines = append(lines, fmt.Sprintf("         and %d more", rest))
	}
	for i, n := range notes {
		lead := "         "
		if i == 0 {
			lead = "notes    "
		}
		lines = append(lines, lead+n.GetTime().AsTime().In(now.Location()).Format(time.TimeOnly)+" "+noteLine(n))
	}
	return lines[:min(len(lines), max(rows, 4))]
}

func trialsLine(s *outbidv1.Sweep) string {
	c := s.GetCounts()
	line := formatCount(int64(finished(c)))
	if n := s.GetOutlook().GetTrials(); n > 0 {
		line += " of " + formatCount(int64(n))
	}
	line += " ended"
	for _, part := range []struct {
		n    int32
		name string
	}{
		{c.GetRunning(), "running"}, {c.GetQueued(), "queued"}, {c.GetPaused(), "paused"}, {c.GetFailed(), "failed"},
	} {
		if part.n > 0 {
			line += fmt.Sprintf(", %s %s", formatCount(int64(part.n)), part.name)
		}
	}
	return line
}

func stepsLine(p *progress, columns int) string {
	done, all := p.sweep.GetSteps(), p.sweep.GetOutlook().GetSteps()
	line, rate := formatCount(done), p.rate()
	if all > 0 {
		share := min(1, float64(done)/float64(all))
		line = fmt.Sprintf("%s %s of %s, %.0f %%", bar(share, min(24, columns/4)), line, formatCount(all), 100*share)
	}
	if rate > 0 && !p.over() {
		line += fmt.Sprintf(", %s/s", formatMetric(roundRate(rate)))
		if all > done {
			line += ", about " + formatGuess(float64(all-done)/rate) + " left"
		}
	}
	return line
}

// roundRate keeps a rate from flickering in digits nobody reads.
func roundRate(rate float64) float64 {
	switch {
	case rate >= 100:
		return float64(int64(rate + 0.5))
	default:
		return float64(int64(rate*10+0.5)) / 10
	}
}

// bar draws a share as a bar.
func bar(share float64, width int) string {
	full := int(share*float64(width) + 0.5)
	return strings.Repeat("━", full) + strings.Repeat("─", width-full)
}

func bestLine(s *outbidv1.Sweep) string {
	best := s.GetBest()
	if best == nil || best.Best == nil {
		return "no " + s.GetSpec().GetMetric() + " yet"
	}
	return fmt.Sprintf("%s %s, trial %d at step %s: %s", s.GetSpec().GetMetric(), formatMetric(best.GetBest()),
		best.GetNumber(), formatCount(best.GetBestStep()), configLine(configOf(best)))
}

func runningLine(s *outbidv1.Sweep, t *outbidv1.Trial) string {
	steps := formatCount(t.GetStep())
	if t.GetUntilStep() > 0 {
		steps += "/" + formatCount(t.GetUntilStep())
	}
	line := fmt.Sprintf("%4d  step %-11s", t.GetNumber(), steps)
	metric := s.GetSpec().GetMetric()
	if v, ok := t.GetLast().GetMetrics()[metric]; ok {
		line += fmt.Sprintf("  %s %-10s", metric, formatMetric(v))
	}
	if r := t.GetStepsPerSecond(); r > 0 {
		line += fmt.Sprintf("  %s/s", formatMetric(roundRate(r)))
	}
	if t.GetNode() != "" {
		line += "  " + place(t)
	}
	return line
}

// place is where a trial runs: the node and its devices.
func place(t *outbidv1.Trial) string {
	if t.GetNode() == "" {
		return ""
	}
	parts := make([]string, len(t.GetDevices()))
	for i, d := range t.GetDevices() {
		parts[i] = fmt.Sprint(d)
	}
	return clean(t.GetNode()) + ":" + strings.Join(parts, ",")
}
