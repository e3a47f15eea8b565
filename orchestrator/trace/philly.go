package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// phillyJob is an entry of Philly's log.
type phillyJob struct {
	Status    string `json:"status"`
	VC        string `json:"vc"`
	JobID     string `json:"jobid"`
	Submitted string `json:"submitted_time"`
	User      string `json:"user"`
	Attempts  []struct {
		Start  string `json:"start_time"`
		End    string `json:"end_time"`
		Detail []struct {
			IP   string   `json:"ip"`
			GPUs []string `json:"gpus"`
		} `json:"detail"`
	} `json:"attempts"`
}

// readPhilly reads Microsoft's Philly trace, cluster_job_log: a JSON list of
//
//	{"status": "Pass"|"Killed"|"Failed", "vc": hash, "jobid": "application_…", "user": hash,
//	 "submitted_time": "2017-10-07 01:11:39",
//	 "attempts": [{"start_time": "…", "end_time": "…", "detail": [{"ip": "m47", "gpus": ["gpu0", …]}, …]}, …]}
//
// A time may be null or "None". A job's gang is that of its last attempt with GPUs, its duration the sum of its
// attempts. Jobs without GPUs or without a finished attempt are skipped and counted, because their size is unknown.
// Times are local and jump by an hour at the end of October; seconds count from the first submission as written.
func readPhilly(r *reader) error {
	count := &lineCounter{in: r.in}
	in := json.NewDecoder(count)
	if _, err := in.Token(); err != nil {
		return &RowError{File: r.file, Line: 1, Reason: err.Error()}
	}
	for in.More() {
		// The offset is after the comma or bracket before the entry, which begins with the next non-space byte.
		var entry json.RawMessage
		if err := in.Decode(&entry); err != nil {
			return r.phillySyntax(count.line(in.InputOffset()), err)
		}
		r.trace.Report.Rows++
		line := count.line(in.InputOffset() - int64(len(entry)) + 1)
		if err := r.phillyEntry(entry, line); err != nil {
			return err
		}
	}
	if _, err := in.Token(); err != nil {
		return r.phillySyntax(count.line(in.InputOffset()), err)
	}
	r.trace.FromZero()
	return nil
}

// phillySyntax returns an error after which reading must stop, lenient or not.
func (r *reader) phillySyntax(line int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &RowError{File: r.file, Line: line, Reason: "the list does not end: the file is cut short"}
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return fmt.Errorf("read %s: line %d: %w", r.file, line, err)
	}
	return &RowError{File: r.file, Line: line, Reason: "not JSON: " + err.Error()}
}

func (r *reader) phillyEntry(entry []byte, line int) error {
	var from phillyJob
	if err := json.Unmarshal(entry, &from); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			reason := fmt.Sprintf("want a %s, found a %s", kind.Type, kind.Value)
			return r.fault(&RowError{Line: line, Column: kind.Field, Reason: reason})
		}
		return r.fault(&RowError{Line: line, Reason: err.Error()})
	}
	job := Job{ID: from.JobID, Tenant: from.VC, User: from.User, Share: 1, Weight: 1, Status: from.Status}
	submitted, ok := phillyTime(from.Submitted)
	if !ok || submitted < 0 {
		return r.fault(badValue(line, "submitted_time", from.Submitted, "want a time such as "+wallClock))
	}
	job.Submit = submitted
	if fault := from.attempts(&job); fault != nil {
		fault.Line = line
		return r.fault(fault)
	}
	switch {
	case job.MaxGPUs == 0:
		r.trace.Report.leaveOut("no attempt held a GPU")
		return nil
	case job.Duration == 0:
		r.trace.Report.leaveOut("no attempt has both start and end")
		return nil
	}
	return r.add(line, job)
}

// attempts fills in the gang and the duration.
func (p *phillyJob) attempts(job *Job) *RowError {
	for _, attempt := range p.Attempts {
		gpus := 0
		for _, machine := range attempt.Detail {
			gpus += len(machine.GPUs)
		}
		if gpus > 0 {
			job.MinGPUs, job.MaxGPUs, job.Nodes = gpus, gpus, len(attempt.Detail)
		}
		start, started := phillyTime(attempt.Start)
		end, ended := phillyTime(attempt.End)
		for _, text := range []string{attempt.Start, attempt.End} {
			if _, ok := phillyTime(text); !ok && text != "" && text != "None" {
				return badValue(0, "attempts", text, "want a time such as "+wallClock+", or null")
			}
		}
		if !started || !ended {
			continue
		}
		if end < start {
			return badValue(0, "attempts", attempt.End, "the attempt ends before its start")
		}
		job.Duration += end - start
	}
	return nil
}

// phillyTime returns a time as seconds since 1970, or false if it is missing.
func phillyTime(text string) (float64, bool) {
	at, err := time.Parse(wallClock, text)
	if err != nil {
		return 0, false
	}
	return float64(at.Unix()), true
}

// lineCounter converts offsets in the input to line numbers. Offsets must be passed in ascending order.
type lineCounter struct {
	in     io.Reader
	offset int64
	// breaks are the offsets of line ends not yet passed; passed counts the others.
	breaks []int64
	passed int
}

func (c *lineCounter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	for i, b := range p[:n] {
		if b == '\n' {
			c.breaks = append(c.breaks, c.offset+int64(i))
		}
	}
	c.offset += int64(n)
	return n, err
}

func (c *lineCounter) line(offset int64) int {
	passed := 0
	for passed < len(c.breaks) && c.breaks[passed] < offset {
		passed++
	}
	c.breaks = append(c.breaks[:0], c.breaks[passed:]...)
	c.passed += passed
	return c.passed + 1
}
