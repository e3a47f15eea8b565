package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// livePresenter redraws a few lines in place. It never clears the screen or changes the lines above.
type livePresenter struct {
	w     io.Writer
	term  terminal
	now   func() time.Time
	drawn int
	last  time.Time
	notes noteLog
	// failed shows each kind of failure once.
	failed failureLog
	// recent has the newest notes, oldest first.
	recent []*outbidv1.SweepNote
}

const (
	// redrawEvery is the shortest time between redraws.
	redrawEvery = 100 * time.Millisecond
	// recentNotes is how many notes stay on the screen.
	recentNotes = 4
	// minBar and maxBar bound the bar's width.
	minBar, maxBar = 5, 24
)

func (lp *livePresenter) update(p *progress, u *outbidv1.WatchSweepResponse) error {
	if err := lp.takeNotes(p); err != nil {
		return err
	}
	now := lp.now()
	if u != nil && now.Sub(lp.last) < redrawEvery && !p.over() {
		return nil
	}
	lp.last = now
	columns, rows := lp.term.size()
	lines := liveLines(p, lp.recent, now, columns, rows-2)
	return lp.draw(lines, columns)
}

// takeNotes prints new warnings once, permanently above the moving lines. Other notes are part of the moving lines.
func (lp *livePresenter) takeNotes(p *progress) error {
	columns, _ := lp.term.size()
	for _, n := range lp.notes.fresh(p.sweep.GetNotes()) {
		switch {
		case !isWarning(n):
			lp.recent = append(lp.recent, n)
		case lp.failed.isNews(n):
			lp.printAbove(hang(noteTime(n, lp.now())+" "+noteLine(n), columns))
		}
	}
	for _, line := range lp.failed.excerpts() {
		if !strings.HasPrefix(line, " ") {
			line = lp.now().Format(time.TimeOnly) + " " + line
		}
		lp.printAbove(line)
	}
	lp.recent = lp.recent[max(0, len(lp.recent)-recentNotes):]
	return nil
}

// printAbove prints a permanent line above the moving lines.
func (lp *livePresenter) printAbove(line string) {
	lp.hide()
	lp.last = time.Time{} // redraw the moving lines at once
	_, _ = fmt.Fprintln(lp.w, line)
}

// isWarning reports whether a note is a warning or an error.
func isWarning(n *outbidv1.SweepNote) bool { return n.GetLevel() != "info" && n.GetLevel() != "" }

func noteTime(n *outbidv1.SweepNote, now time.Time) string {
	return n.GetTime().AsTime().In(now.Location()).Format(time.TimeOnly)
}

// draw replaces the previous lines.
func (lp *livePresenter) draw(lines []string, columns int) error {
	var b strings.Builder
	b.WriteString("\x1b[?25l") // no cursor while drawing
	if lp.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", lp.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r\x1b[2K" + lp.paint(shorten(line, columns-1)) + "\n")
	}
	// Clear remaining lines of the previous drawing.
	b.WriteString("\x1b[J\x1b[?25h")
	lp.drawn = len(lines)
	_, err := io.WriteString(lp.w, b.String())
	return err
}

// paint highlights the first word of a line.
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
	columns, _ := lp.term.size()
	lines := append(lp.failed.summary(), resultLines(p, lp.now())...)
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") { // lines of parameters may be copied, so they stay unpainted
			lines[i] = hang(line, columns)
		}
	}
	_, err := io.WriteString(lp.w, strings.Join(lines, "\n")+"\n")
	return err
}

// liveLines returns a sweep's progress in at most rows lines.
func liveLines(p *progress, notes []*outbidv1.SweepNote, now time.Time, columns, rows int) []string {
	s := p.sweep
	head := fmt.Sprintf("%-8s %s, %s", clean(s.GetId()), sweepState(s.GetState()), formatDuration(elapsedSeconds(s, now)))
	if from := memoryLine(s.GetMemory()); from != "" {
		head += ", " + from
	}
	lines := []string{
		head,
		"trials   " + trialsLine(s),
		"steps    " + stepsLine(p, columns-1-len("steps    ")),
		"best     " + bestLine(s),
	}
	if !p.lost.IsZero() {
		lines = append(lines, fmt.Sprintf("server   has not answered since %s; retrying",
			formatDuration(now.Sub(p.lost).Seconds())))
	}
	if w := s.GetWaiting(); w != "" {
		lines = append(lines, "waiting  "+clean(w))
	}
	lines = append(lines, "")
	for i, n := range notes {
		lead := "         "
		if i == 0 {
			lead = "notes    "
		}
		lines = append(lines, lead+noteTime(n, now)+" "+noteLine(n))
	}
	if len(notes) > 0 {
		lines = append(lines, "")
	}
	lines = append(lines, runningLines(s, p.running(), columns-1, max(1, rows-len(lines)))...)
	return lines[:min(len(lines), max(rows, 4))]
}

// runningLines returns the table of running trials in at most rows lines. It shortens only the configuration.
func runningLines(s *outbidv1.Sweep, running []*outbidv1.Trial, columns, rows int) []string {
	if len(running) == 0 {
		return nil
	}
	room := max(1, rows-1) // below the header
	if len(running) > room {
		room = max(1, room-1)
	}
	metrics := []string{s.GetSpec().GetMetric()}
	for _, o := range s.GetSpec().GetObjectives() {
		metrics = append(metrics, o.GetMetric())
	}
	t := table{header: []string{"TRIAL", "STEP"}, width: columns}
	for _, metric := range metrics {
		t.header = append(t.header, strings.ToUpper(clean(metric)))
	}
	t.header = append(t.header, "STEPS/S", "WHERE", "CONFIG")
	shown := running[:min(len(running), room)]
	configs := configLines(shown)
	for i, tr := range shown {
		t.rows = append(t.rows, append(runningRow(metrics, tr), configs[i]))
		if forks := forkRows(tr); len(t.rows)+len(forks)+len(running)-i-1 <= room { // what there is room for
			t.rows = append(t.rows, forks...)
		}
	}
	var b strings.Builder
	t.write(&b)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if rest := len(running) - room; rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", rest))
	}
	return lines
}

// runningRow returns the cells of a running trial before its configuration.
func runningRow(metrics []string, t *outbidv1.Trial) []string {
	step, rate, where := formatCount(t.GetStep()), "-", "-"
	if t.GetUntilStep() > 0 {
		step += "/" + formatCount(t.GetUntilStep())
	}
	values := make([]string, len(metrics))
	for i, metric := range metrics {
		values[i] = "-"
		if v, ok := t.GetLast().GetMetrics()[metric]; ok {
			values[i] = formatMetric(v)
		}
	}
	if r := t.GetStepsPerSecond(); r > 0 {
		rate = formatMetric(roundRate(r))
	}
	if t.GetNode() != "" {
		where = place(viewTrial(t))
	} else if on := t.GetRound().GetConsolidatesOn(); on != "" {
		where = "averaged on " + clean(on)
	}
	return append(append([]string{fmt.Sprint(t.GetNumber()), step}, values...), rate, where)
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

// stepsLine returns the steps done and the remaining time. The bar gets the remaining columns.
func stepsLine(p *progress, columns int) string {
	done, all := p.sweep.GetSteps(), p.sweep.GetOutlook().GetSteps()
	line, rate := formatCount(done), p.rate()
	share := 0.0
	if all > 0 {
		share = min(1, float64(done)/float64(all))
		line = fmt.Sprintf("%s of %s, %.0f %%", line, formatCount(all), 100*share)
	}
	if rate > 0 && !p.over() {
		line += fmt.Sprintf(", %s/s", formatMetric(roundRate(rate)))
		if all > done {
			line += ", about " + formatGuess(float64(all-done)/rate) + " left"
		}
	}
	if room := min(maxBar, columns-textWidth(line)-1); all > 0 && room >= minBar {
		line = bar(share, room) + " " + line
	}
	return line
}

// roundRate rounds a rate so that irrelevant digits do not flicker.
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
		if sweepOver(s.GetState()) {
			return fmt.Sprintf("none; no trial reported %s", s.GetSpec().GetMetric())
		}
		return "no " + s.GetSpec().GetMetric() + " yet"
	}
	return fmt.Sprintf("%s, trial %d at step %s: %s", objectiveValues(s, best), best.GetNumber(),
		formatCount(best.GetBestStep()), configLine(configOf(best)))
}

// objectiveValues returns a trial's best value of the first objective and its last values of the others: "loss 0.1, size 9".
func objectiveValues(s *outbidv1.Sweep, t *outbidv1.Trial) string {
	line := s.GetSpec().GetMetric() + " " + formatMetric(t.GetBest())
	for _, o := range s.GetSpec().GetObjectives() {
		if v, ok := t.GetLast().GetMetrics()[o.GetMetric()]; ok {
			line += ", " + o.GetMetric() + " " + formatMetric(v)
		}
	}
	return line
}

// place returns where a trial runs: its first place, and the number of others.
func place(t trialView) string {
	if t.Node == "" {
		return ""
	}
	more := -1
	for _, l := range t.Leases {
		for _, p := range l.Places {
			if !p.Ended {
				more++
			}
		}
	}
	where := placeView{Node: t.Node, Devices: t.Devices}.String()
	if more > 0 {
		where += fmt.Sprintf(" +%d", more)
	}
	return where
}

// String returns the place for display: "gpu-1:0,1".
func (p placeView) String() string {
	parts := make([]string, len(p.Devices))
	for i, d := range p.Devices {
		parts[i] = fmt.Sprint(d)
	}
	return clean(p.Node) + ":" + strings.Join(parts, ",")
}
