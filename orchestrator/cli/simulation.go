package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// simulationName is the hidden command that simulates a ledger for a server.
	simulationName = "simulate-ledger"
	// maxSimulatedBytes limits the ledger that is simulated.
	maxSimulatedBytes = 128 << 20
	// maxSimulationMemory is the memory that the process may have. Beyond half of it, it collects garbage more often.
	maxSimulationMemory = 1 << 30
	// maxSimulationSeconds is the processor time that the process may take. Servers stop it earlier.
	maxSimulationSeconds = 300
	// simulationNice is the niceness of the process until it yields to the server: a third of its share of a busy processor.
	simulationNice = 5
	// maxOutcome limits a message of the process.
	maxOutcome = 4 << 20
)

// simulation simulates a server's ledger in another process, so that it takes neither memory nor time from the server.
type simulation struct{ policies registry.Registry }

// Policies implements server.WhatIf.
func (s simulation) Policies() []string { return s.policies.Names() }

// Run implements server.WhatIf.
func (simulation) Run(ctx context.Context, l ledger.Ledger, req *outbidv1.SimulateLedgerRequest, tell func(*outbidv1.SimulateLedgerResponse) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop() // it kills the process
	self, err := os.Executable()
	if err != nil {
		return err
	}
	failed := &tail{most: 4 << 10}
	cmd := exec.CommandContext(ctx, self, simulationName)
	cmd.Stderr = failed
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", fmt.Sprintf("GOMEMLIMIT=%d", maxSimulationMemory/2))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the server, which then ends it
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = unix.Setpriority(unix.PRIO_PGRP, cmd.Process.Pid, simulationNice) // on failure it runs at normal priority
	sent := make(chan error, 1)
	go func() {
		err := sendLedger(ctx, in, l, req)
		if err != nil {
			stop() // a part of the ledger must not be simulated
		}
		_ = in.Close() // the process sees the end
		sent <- err
	}()
	told := receiveOutcomes(out, tell)
	if told != nil {
		stop()
	}
	ended := cmd.Wait()
	lost := <-sent
	if errors.Is(lost, errLongLedger) {
		return lost
	}
	if told == nil && ended != nil {
		told = failed.error(ended)
	}
	if told == nil && !errors.Is(lost, syscall.EPIPE) && !errors.Is(lost, os.ErrClosed) {
		told = lost
	}
	return told
}

// errLongLedger means that the ledger is too long.
var errLongLedger = fmt.Errorf("%w: the ledger has more than %d MiB, which is not simulated here; save it with 'outbid export --ledger' and simulate it with "+
	"'outbid replay --policy'", state.ErrInvalid, maxSimulatedBytes>>20)

// sendLedger writes the request and the batches of a ledger.
func sendLedger(ctx context.Context, to io.Writer, l ledger.Ledger, req *outbidv1.SimulateLedgerRequest) error {
	if _, err := protodelim.MarshalTo(to, req); err != nil {
		return err
	}
	bytes := 0
	return l.Read(ctx, 1, func(b *outbidv1.Batch) error {
		n, err := protodelim.MarshalTo(to, b)
		if bytes += n; bytes > maxSimulatedBytes {
			return errLongLedger
		}
		return err
	})
}

// receiveOutcomes reads the results of the process until its end.
func receiveOutcomes(from io.Reader, tell func(*outbidv1.SimulateLedgerResponse) error) error {
	in := bufio.NewReader(from)
	for {
		got := &outbidv1.SimulateLedgerResponse{}
		err := protodelim.UnmarshalOptions{MaxSize: maxOutcome}.UnmarshalFrom(in, got)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("simulate the ledger: %w", err)
		}
		if err := tell(got); err != nil {
			return err
		}
	}
}

// tail keeps the end of the output of a process.
type tail struct {
	most int
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-t.most):]
	return len(p), nil
}

// error returns the error of the process. It wraps state.ErrInvalid if the request is at fault.
func (t *tail) error(ended error) error {
	text := strings.TrimPrefix(string(bytes.TrimSpace(t.text)), "outbid: ")
	if exit, ok := errors.AsType[*exec.ExitError](ended); ok && exit.ExitCode() == exitUsage {
		return fmt.Errorf("%w: %s", state.ErrInvalid, text)
	}
	return fmt.Errorf("simulate the ledger: %w: %s", ended, text)
}

// simulationCommand simulates the ledger on standard input.
func (ex *explainCommand) simulationCommand() *cobra.Command {
	return &cobra.Command{
		Use:   simulationName,
		Short: "Simulate a ledger for a server",
		Long: `Simulate-ledger reads a request and a ledger from standard input, and writes how the sweeps fared and would fare.
Servers start it for 'outbid what-if' and 'outbid explain'; its format is not stable.`,
		Example:     "  outbid simulate-ledger",
		Annotations: map[string]string{globalFlags: ""},
		Args:        exactArgs(),
		Hidden:      true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			yieldToServer()
			for resource, most := range map[int]uint64{unix.RLIMIT_DATA: maxSimulationMemory, unix.RLIMIT_CPU: maxSimulationSeconds, unix.RLIMIT_CORE: 0} {
				if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
					return fmt.Errorf("limit the simulation: %w", err)
				}
			}
			req, l, err := readSimulation(ex.stdin)
			if err != nil {
				return err
			}
			return experiment.WhatIf(cmd.Context(), ex.edition.Policies, l, req, func(r *outbidv1.SimulateLedgerResponse) error {
				_, err := protodelim.MarshalTo(ex.stdout, r)
				return err
			})
		},
	}
}

// readSimulation reads the output of sendLedger.
func readSimulation(from io.Reader) (*outbidv1.SimulateLedgerRequest, ledger.Ledger, error) {
	in := bufio.NewReader(from)
	req := &outbidv1.SimulateLedgerRequest{}
	if err := protodelim.UnmarshalFrom(in, req); err != nil {
		return nil, nil, fmt.Errorf("read the request: %w", err)
	}
	var batches [][]byte
	for {
		b := &outbidv1.Batch{}
		err := protodelim.UnmarshalOptions{MaxSize: maxSimulatedBytes}.UnmarshalFrom(in, b)
		if errors.Is(err, io.EOF) {
			return req, ledger.NewMemoryOf(batches), nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read batch %d: %w", len(batches)+1, err)
		}
		data, err := proto.Marshal(b)
		if err != nil {
			return nil, nil, err
		}
		batches = append(batches, data)
	}
}
