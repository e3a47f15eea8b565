// Package process starts training processes, each in its own process group, reads their output, stops and reaps them,
// and makes sure that none outlives its worker.
package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/redact"
	"github.com/outbid-dev/outbid/worker/subreaper"
)

// MaxLine is the most bytes of a line that are delivered at once; a longer line comes in pieces.
const MaxLine = 64 << 10

// drainTimeout limits the wait for output after the end of a group, because a process that left the group may keep
// the pipes open.
const drainTimeout = 2 * time.Second

// Command describes a process to start.
type Command struct {
	// Argv is the program and its arguments. A name without a slash is looked up in the PATH of Env; a relative path
	// is relative to Dir.
	Argv []string
	// Env is the whole environment, as "name=value"; later entries win.
	Env []string
	// Dir is the working directory; empty means that of the worker.
	Dir string
	// In confines the process; nil means that it only has its process group.
	In *confine.Confinement
	// Output receives the output line by line without line ends, from one goroutine per stream. The line is only
	// valid during the call. nil discards the output.
	Output func(stream Stream, line []byte)
	// Mask replaces values of secrets in the output; nil replaces nothing.
	Mask *redact.Mask
}

// Stream is the stream that a line was printed to.
type Stream string

// The streams of a process.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Process is a running process group. Its methods may be called concurrently.
type Process struct {
	host  *Host
	in    *confine.Confinement
	cmd   *exec.Cmd
	below *subreaper.Child // nil without a subreaper
	pid   int
	pipes []*os.File
	read  sync.WaitGroup
	done  chan struct{}

	mu      sync.Mutex
	reaped  bool
	asked   bool
	killer  *time.Timer
	pace    *pacer
	held    bool
	outcome Outcome
}

// newProcess creates the pipes and the command, which the host's launcher starts.
func newProcess(h *Host, c Command) (*Process, []*os.File, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, nil, errors.New("no program given")
	}
	path, err := lookPath(c.Argv[0], c.Env, c.Dir)
	if err != nil {
		return nil, nil, err
	}
	if info, err := os.Stat(c.Dir); c.Dir != "" && (err != nil || !info.IsDir()) {
		return nil, nil, fmt.Errorf("working directory %q does not exist on this node", c.Dir)
	}
	p := &Process{host: h, in: c.In, done: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: path, Args: c.Argv, Dir: c.Dir, Env: append(c.In.Env(c.Env[:len(c.Env):len(c.Env)]), groupEnv+"="+h.token),
		SysProcAttr: attributes(),
	}
	var ends []*os.File // the child's ends
	for _, stream := range []Stream{Stdout, Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ends)
			closeAll(p.pipes)
			return nil, nil, fmt.Errorf("create a pipe: %w", err)
		}
		p.pipes, ends = append(p.pipes, r), append(ends, w)
		p.read.Go(func() { readLines(r, stream, c.Mask, c.Output) })
	}
	p.cmd.Stdout, p.cmd.Stderr = ends[0], ends[1]
	if c.In.Escapes() && subreaper.Ready() {
		if p.below, err = subreaper.Wrap(p.cmd); err != nil {
			closeAll(ends)
			closeAll(p.pipes)
			return nil, nil, err
		}
	}
	return p, ends, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // only pipes: no data is lost
	}
}

// readLines delivers lines until the pipe ends, with the values of secrets replaced. Lines longer than MaxLine come
// in parts.
func readLines(r io.Reader, stream Stream, mask *redact.Mask, output func(Stream, []byte)) {
	br, lines := bufio.NewReaderSize(r, MaxLine), redact.NewLines(mask)
	for {
		line, err := br.ReadSlice('\n')
		part := errors.Is(err, bufio.ErrBufferFull)
		line, whole := bytes.CutSuffix(line, []byte{'\n'})
		if shown := lines.Take(line, !part); whole || len(shown) > 0 {
			deliver(stream, shown, output)
		}
		if err != nil && !part {
			return
		}
	}
}

// deliver passes on a line in parts of at most MaxLine bytes.
func deliver(stream Stream, line []byte, output func(Stream, []byte)) {
	if output == nil {
		return
	}
	for len(line) > MaxLine {
		output(stream, line[:MaxLine])
		line = line[MaxLine:]
	}
	output(stream, line)
}

// PID returns the process id, which is also the id of its group.
func (p *Process) PID() int { return p.pid }

// Done is closed once the group is gone and reaped, and its output is delivered.
func (p *Process) Done() <-chan struct{} { return p.done }

// Outcome returns how the process ended. It is only valid after Done.
func (p *Process) Outcome() Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outcome
}

// Stop asks the group to end (SIGTERM) and kills it after grace. It returns at once.
func (p *Process) Stop(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = true
	if p.killer != nil || p.reaped {
		return
	}
	p.unpace()
	p.signal(syscall.SIGTERM)
	p.resume()
	p.killer = time.AfterFunc(grace, p.Kill)
}

// Kill kills the group (SIGKILL).
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = true
	p.signal(syscall.SIGKILL)
}

// signal sends a signal to the whole group, unless the leader was reaped: then another process may have its id.
func (p *Process) signal(sig syscall.Signal) {
	if !p.reaped {
		_ = syscall.Kill(-p.pid, sig) // ESRCH: already gone
	}
}

// wait waits for the process until it is gone. The leader stays a zombie until its group is killed, so that no other
// process can have the group's id.
func (p *Process) wait() {
	there := p.awaitExit()
	p.mu.Lock()
	if !there {
		p.reaped = true
	}
	p.unpace()
	if p.killer != nil {
		p.killer.Stop()
	}
	p.signal(syscall.SIGKILL)
	p.reaped = true
	asked := p.asked
	p.mu.Unlock()
	outcome := p.reap()
	outcome.Asked = asked
	met := p.in.Left() // this also ends processes that left the group, unless others of the trial still run
	outcome.OutOfMemory, outcome.TooManyProcesses = met.MemoryBytes, met.Processes
	p.mu.Lock()
	p.outcome = outcome
	p.mu.Unlock()
	for _, r := range p.pipes {
		_ = r.SetReadDeadline(time.Now().Add(drainTimeout)) // pipes support deadlines
	}
	p.read.Wait()
	closeAll(p.pipes)
	p.host.forget(p)
	close(p.done)
}

// awaitExit returns when the process has ended, without reaping it. It returns false if the process was reaped
// elsewhere, so that another process may have its id.
func (p *Process) awaitExit() bool {
	if p.below != nil {
		return p.below.Await() == nil
	}
	awaitZombie(p.pid)
	return true
}

// reap reaps the process. With a subreaper it also ends all its descendants.
func (p *Process) reap() Outcome {
	if p.below == nil {
		err := p.cmd.Wait()
		if state := p.cmd.ProcessState; err == nil || state != nil {
			usage, _ := state.SysUsage().(*syscall.Rusage)
			status, _ := state.Sys().(syscall.WaitStatus)
			return outcomeOf(status, usage.Maxrss*maxrssUnit)
		}
		return Outcome{Code: -1} // reaped elsewhere
	}
	status, maxrss, remains, err := p.below.Reap()
	if err != nil {
		p.host.log.Warn("cannot list the processes that a trial left behind; only those with its environment are ended", "error", err)
		return Outcome{Code: -1, Signal: syscall.SIGKILL} // what happens to it without its subreaper
	}
	if len(remains) > 0 {
		p.host.log.Warn("cannot end processes of a trial", "pids", remains)
	}
	return outcomeOf(status, maxrss*maxrssUnit)
}

// Outcome describes how a process ended.
type Outcome struct {
	// Code is the exit code; -1 if a signal ended the process.
	Code int
	// Signal is the signal that ended the process; 0 if none did.
	Signal syscall.Signal
	// Asked is set if Stop or Kill was called before it ended.
	Asked bool
	// PeakBytes is the most memory that the process used at a time.
	PeakBytes int64
	// OutOfMemory is the memory limit in bytes if the kernel killed a process of the trial for exceeding it;
	// otherwise 0.
	OutOfMemory int64
	// TooManyProcesses is the limit of processes and threads if the kernel refused to start another one of the trial;
	// otherwise 0.
	TooManyProcesses int64
}

// outcomeOf returns an Outcome from a wait status and the peak memory usage in bytes.
func outcomeOf(status syscall.WaitStatus, peak int64) Outcome {
	o := Outcome{Code: status.ExitStatus(), PeakBytes: peak}
	if status.Signaled() {
		o.Signal = status.Signal()
	}
	return o
}

// OK reports whether the process ended successfully by itself.
func (o Outcome) OK() bool { return o.Code == 0 && o.Signal == 0 }

// String describes the outcome in one line for the user.
func (o Outcome) String() string {
	text := o.end()
	if o.TooManyProcesses > 0 && !o.OK() {
		text += fmt.Sprintf(", after it reached the limit of %d processes and threads (--trial-processes)", o.TooManyProcesses)
	}
	return text
}

// end describes what ended the process.
func (o Outcome) end() string {
	switch {
	case o.OutOfMemory > 0 && !o.OK() && !o.Asked:
		return fmt.Sprintf("out of memory: used its %s (resources.memory)", humanize.IBytes(uint64(o.OutOfMemory)))
	case o.Signal == syscall.SIGKILL && !o.Asked:
		return fmt.Sprintf("killed by signal 9: perhaps out of memory (it used up to %d MiB)", o.PeakBytes>>20)
	case o.Signal != 0:
		return fmt.Sprintf("killed by signal %d (%s)", int(o.Signal), o.Signal)
	default:
		return fmt.Sprintf("exited with code %d", o.Code)
	}
}

// lookPath finds a program as the process itself would.
func lookPath(name string, env []string, dir string) (string, error) {
	if filepath.Base(name) != name {
		path := name
		if !filepath.IsAbs(name) {
			path = filepath.Join(dir, name)
		}
		if err := executable(path); err != nil {
			return "", fmt.Errorf("program %q: %w", name, err)
		}
		return path, nil
	}
	search := ""
	for _, entry := range env {
		if len(entry) > 5 && entry[:5] == "PATH=" {
			search = entry[5:]
		}
	}
	for _, place := range filepath.SplitList(search) {
		if path := filepath.Join(place, name); filepath.IsAbs(path) && executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("program %q is not in the PATH of this node", name)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return errors.New("does not exist on this node")
	case info.IsDir():
		return errors.New("is a directory")
	case info.Mode()&0o111 == 0:
		return errors.New("is not executable (chmod +x)")
	}
	return nil
}
