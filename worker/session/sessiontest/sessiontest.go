// Package sessiontest is a small training process in Go: the client side of the session socket, for tests and
// benchmarks of workers and orchestrators without Python.
package sessiontest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Enabled reports whether this process was started by a worker. Test binaries call it first in TestMain.
func Enabled() bool { return os.Getenv("OUTBID_STREAM") != "" && os.Getenv("OUTBID_SESSION") != "" }

// ErrEnded is returned by Reached and Wait when the trial has to pause or stop.
var ErrEnded = errors.New("the trial has to end")

// Client is an attached process.
type Client struct {
	conn net.Conn
}

// Attach connects to the worker named in the environment.
func Attach(ctx context.Context) (*Client, error) {
	return Open(ctx, os.Getenv("OUTBID_STREAM"), os.Getenv("OUTBID_SESSION"))
}

// Open connects to the socket and presents a secret.
func Open(ctx context.Context, socket, secret string) (*Client, error) {
	conn, err := dialPatiently(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", socket, err)
	}
	c := &Client{conn}
	hello := &outbidv1.ProcessHello{Session: secret, Pid: int32(os.Getpid()), SdkVersion: "sessiontest"}
	if err := c.Send(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Hello{Hello: hello}}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// Close ends the stream.
func (c *Client) Close() error { return c.conn.Close() }

// Send sends a message to the worker, with its length, four bytes, in front of it.
func (c *Client) Send(m *outbidv1.AttachRequest) error {
	data, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if _, err := c.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)); err != nil {
		return fmt.Errorf("send to the worker: %w", err)
	}
	return nil
}

// receive returns the next message of the worker.
func (c *Client) receive() (*outbidv1.AttachResponse, error) {
	var length [4]byte
	if _, err := io.ReadFull(c.conn, length[:]); err != nil {
		return nil, fmt.Errorf("receive from the worker: %w", err)
	}
	data := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(c.conn, data); err != nil {
		return nil, fmt.Errorf("receive from the worker: %w", err)
	}
	m := new(outbidv1.AttachResponse)
	if err := proto.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("receive from the worker: %w", err)
	}
	return m, nil
}

// Next waits for a trial. It returns io.EOF when the process has to exit.
func (c *Client) Next() (*Trial, error) {
	for {
		m, err := c.receive()
		if err != nil {
			return nil, err
		}
		switch {
		case m.GetShutdown() != nil:
			return nil, io.EOF
		case m.GetAssignment() != nil:
			a := m.GetAssignment()
			return &Trial{
				TrialAssignment: a, Until: a.GetUntilStep(), Verdict: outbidv1.Verdict_VERDICT_TRAIN, client: c,
			}, nil
		}
	}
}

// Run attaches and trains trials until the process has to exit. The result of train ends its trial: nil as finished,
// ErrEnded as ordered, any other error as failed.
func Run(ctx context.Context, train func(t *Trial) error) error {
	c, err := Attach(ctx)
	if err != nil {
		return err
	}
	for {
		t, err := c.Next()
		if errors.Is(err, io.EOF) {
			return c.Close()
		}
		if err != nil {
			return errors.Join(err, c.Close())
		}
		if err := t.End(train(t)); err != nil {
			return errors.Join(err, c.Close())
		}
	}
}

// Trial is one trial in this process. It is used by one goroutine.
type Trial struct {
	*outbidv1.TrialAssignment

	// Until and Verdict are those of the last order.
	Until   int64
	Verdict outbidv1.Verdict
	// Acked is the last report that the orchestrator decided on.
	Acked uint64
	// Step is the step of the last report.
	Step int64

	client *Client
	seq    uint64
}

// Report reports metrics at a step.
func (t *Trial) Report(step int64, metrics map[string]float64) error {
	t.seq++
	t.Step = step
	return t.client.Send(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Reports{Reports: &outbidv1.ReportBatch{
		Fork: t.GetFork(), Reports: []*outbidv1.Report{{
			Seq: t.seq, Step: step, Metrics: metrics, Time: timestamppb.New(time.Now()),
		}},
	}}})
}

// Begin reports that the first step begins.
func (t *Trial) Begin() error {
	began := &outbidv1.ProcessBegan{Fork: t.GetFork()}
	return t.client.Send(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Began{Began: began}})
}

// Save writes a checkpoint and waits until it is in the store.
func (t *Trial) Save(step int64, data []byte) error {
	path := filepath.Join(t.GetScratch(), fmt.Sprintf("%012d.safetensors", step))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	if err := t.client.Send(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Saved{Saved: &outbidv1.ProcessSaved{
		Fork: t.GetFork(), Path: path, Step: step,
	}}}); err != nil {
		return err
	}
	for {
		done, err := t.Wait()
		if err != nil {
			return err
		}
		if done.GetStep() == step {
			if done.GetError() != "" {
				return errors.New(done.GetError())
			}
			return nil
		}
	}
}

// Reached reports that the target was reached and waits for an order: nil means to train until the new Until,
// ErrEnded to end.
func (t *Trial) Reached(step int64) error {
	if err := t.client.Send(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Reached{
		Reached: &outbidv1.ProcessReached{Fork: t.GetFork(), Step: step},
	}}); err != nil {
		return err
	}
	for t.Verdict == outbidv1.Verdict_VERDICT_TRAIN && t.Until != 0 && t.Until <= step {
		if _, err := t.Wait(); err != nil {
			return err
		}
	}
	if t.Verdict != outbidv1.Verdict_VERDICT_TRAIN {
		return ErrEnded
	}
	return nil
}

// Wait handles the next message of the worker. It returns the answer to a save if the message is one.
func (t *Trial) Wait() (*outbidv1.SaveDone, error) {
	m, err := t.client.receive()
	if err != nil {
		return nil, err
	}
	if d := m.GetDirective(); d != nil && d.GetFork().GetLeaseId() == t.GetFork().GetLeaseId() {
		t.Until, t.Verdict, t.Acked = d.GetUntilStep(), d.GetVerdict(), d.GetAckedSeq()
	}
	if s := m.GetSaveDone(); s.GetFork().GetLeaseId() == t.GetFork().GetLeaseId() {
		return s, nil
	}
	return nil, nil
}

// End reports how the trial ended.
func (t *Trial) End(err error) error {
	ended := &outbidv1.ProcessEnded{Fork: t.GetFork(), Step: t.Step}
	if errors.Is(err, ErrEnded) {
		ended.Ordered = true
	} else if err != nil {
		ended.Error = err.Error()
	}
	return t.client.Send(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Ended{Ended: ended}})
}

// dialPatiently connects once the socket's queue has room, like a blocking connect. Go's own dial fails with EAGAIN.
func dialPatiently(ctx context.Context, socket string) (net.Conn, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if !errors.Is(err, syscall.EAGAIN) {
			return conn, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
