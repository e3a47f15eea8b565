package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// plainPresenter prints a line for each note and each new best trial, and a count at intervals.
type plainPresenter struct {
	w       io.Writer
	now     func() time.Time
	notes   noteLog
	failed  failureLog
	best    *float64
	counted time.Time
	line    string
	lost    bool
	// rounds maps each trial to its number of ended fork slots.
	rounds map[int32]int32
}

// plainEvery is the interval of counts while nothing else happens.
const plainEvery = 10 * time.Second

func (pp *plainPresenter) update(p *progress, u *outbidv1.WatchSweepResponse) error {
	if lost := !p.lost.IsZero(); lost != pp.lost {
		pp.lost = lost
		if lost {
			pp.print(p, "the server does not answer; retrying, the sweep is safe in its ledger")
		} else {
			pp.print(p, "the server is back")
		}
	}
	for _, n := range pp.notes.fresh(p.sweep.GetNotes()) {
		if pp.failed.isNews(n) {
			pp.print(p, noteLine(n))
		}
	}
	pp.printExcerpts(p)
	for _, t := range u.GetTrials() {
		pp.merged(p, t)
	}
	if best := p.sweep.GetBest(); best != nil && best.Best != nil && (pp.best == nil || *pp.best != best.GetBest()) {
		pp.best = new(best.GetBest())
		pp.print(p, fmt.Sprintf("best %s: trial %d at step %s, %s", objectiveValues(p.sweep, best), best.GetNumber(),
			formatCount(best.GetBestStep()), configLine(configOf(best))))
	}
	if now := pp.now(); now.Sub(pp.counted) >= plainEvery || p.over() {
		line := countLine(p)
		if line != pp.line {
			pp.print(p, line)
		}
		pp.counted, pp.line = now, line
	}
	return nil
}

// merged prints the result of a fork slot that ended since the trial's last update.
func (pp *plainPresenter) merged(p *progress, t *outbidv1.Trial) {
	if t.GetRound() == nil && t.GetRounds() == 0 {
		return
	}
	before, known := pp.rounds[t.GetNumber()]
	if pp.rounds == nil {
		pp.rounds = map[int32]int32{}
	}
	pp.rounds[t.GetNumber()] = t.GetRounds()
	if !known {
		return
	}
	for _, m := range viewMerges(t.GetMerges()) {
		if m.Round > before {
			pp.print(p, fmt.Sprintf("trial %d: %s", t.GetNumber(), m.line()))
		}
	}
}

// printExcerpts prints what failed trials wrote to stderr.
func (pp *plainPresenter) printExcerpts(p *progress) {
	for _, line := range pp.failed.excerpts() {
		if strings.HasPrefix(line, " ") {
			_, _ = fmt.Fprintln(pp.w, line)
		} else {
			pp.print(p, line)
		}
	}
}

func (pp *plainPresenter) print(p *progress, line string) {
	_, _ = fmt.Fprintf(pp.w, "%s %s: %s\n", pp.now().Format(time.TimeOnly), p.sweep.GetId(), line)
}

func (pp *plainPresenter) hide() {}

func (pp *plainPresenter) result(p *progress) error {
	lines := append(pp.failed.summary(), resultLines(p, pp.now())...)
	_, err := io.WriteString(pp.w, strings.Join(lines, "\n")+"\n")
	return err
}

// countLine returns a sweep's progress.
func countLine(p *progress) string {
	c, o := p.sweep.GetCounts(), p.sweep.GetOutlook()
	of := ""
	if o.GetTrials() > 0 {
		of = " of " + formatCount(int64(o.GetTrials()))
	}
	line := fmt.Sprintf("%s; %d%s trials ended, %d running, %d queued, %d paused, %s steps", sweepState(p.sweep.GetState()),
		finished(c), of, c.GetRunning(), c.GetQueued(), c.GetPaused(), formatCount(p.sweep.GetSteps()))
	if o.GetSteps() > 0 {
		line += " of " + formatCount(o.GetSteps())
	}
	if c.GetFailed() > 0 {
		line += fmt.Sprintf(", %d failed", c.GetFailed())
	}
	if w := p.sweep.GetWaiting(); w != "" && c.GetRunning() == 0 {
		line += "; waiting: " + clean(w)
	}
	return line
}

// noteLine formats a note.
func noteLine(n *outbidv1.SweepNote) string {
	text := clean(n.GetText())
	if n.Trial != nil {
		text = fmt.Sprintf("trial %d: %s", n.GetTrial(), text)
	}
	if n.GetLevel() != "" && n.GetLevel() != "info" {
		text = n.GetLevel() + ": " + text
	}
	return text
}

// resultLines returns how a sweep ended and useful next commands.
func resultLines(p *progress, now time.Time) []string {
	s := p.sweep
	head := fmt.Sprintf("%s %s: %s trials, %s steps in %s", s.GetId(), sweepState(s.GetState()),
		formatCount(int64(s.GetCounts().GetTotal())), formatCount(s.GetSteps()), formatDuration(elapsedSeconds(s, now)))
	if s.GetReason() != "" {
		head += " (" + clean(s.GetReason()) + ")"
	}
	lines := []string{head}
	best := s.GetBest()
	if best == nil || best.Best == nil {
		if s.GetState() != outbidv1.SweepState_SWEEP_STATE_FAILED || s.GetReason() == "" {
			lines = append(lines, noMetric(s)) // otherwise the sweep's reason explains it
		}
		return append(lines, fmt.Sprintf("its trials' output: outbid logs %s", s.GetId()))
	}
	if len(best.GetCheckpoints()) > 0 {
		lines = append(lines, fmt.Sprintf("the best trial's checkpoint: outbid best %s --checkpoint FILE", s.GetId()))
	}
	lines = append(lines, fmt.Sprintf("best %s: trial %d at step %s", objectiveValues(s, best), best.GetNumber(),
		formatCount(best.GetBestStep())))
	settings := flatten(configOf(best))
	width := 0
	for _, v := range settings {
		width = max(width, textWidth(v.path))
	}
	for _, v := range settings {
		lines = append(lines, fmt.Sprintf("  %-*s  %s", width, clean(v.path), clean(v.exact())))
	}
	return lines
}

// jsonPresenter prints one line of JSON for each update and for the result.
type jsonPresenter struct {
	w   io.Writer
	now func() time.Time
}

// updateView is one line of `run -o json` and `watch -o json`. The last line has the type "result".
type updateView struct {
	Type     string      `json:"type" doc:"update, or result for the last line"`
	Time     time.Time   `json:"time" doc:"time in UTC"`
	Sweep    sweepView   `json:"sweep" doc:"the sweep's current state"`
	Trials   []trialView `json:"trials" doc:"trials that changed; every trial in the first line"`
	ExitCode *int        `json:"exit_code,omitempty" doc:"result only: the exit code of the command"`
}

func (jp *jsonPresenter) update(p *progress, u *outbidv1.WatchSweepResponse) error {
	if u == nil {
		return nil
	}
	v := updateView{Type: "update", Time: jp.now().UTC(), Sweep: viewSweep(p.sweep, jp.now()), Trials: []trialView{}}
	for _, t := range u.GetTrials() {
		v.Trials = append(v.Trials, viewTrial(t))
	}
	return jp.print(v)
}

func (jp *jsonPresenter) hide() {}

func (jp *jsonPresenter) result(p *progress) error {
	return jp.print(updateView{
		Type: "result", Time: jp.now().UTC(), Sweep: viewSweep(p.sweep, jp.now()), Trials: []trialView{},
		ExitCode: new(endCode(p.sweep.GetState())),
	})
}

func (jp *jsonPresenter) print(v updateView) error {
	data, err := encodeJSON(v, false)
	if err != nil {
		return err
	}
	_, err = jp.w.Write(append(data, '\n'))
	return err
}
