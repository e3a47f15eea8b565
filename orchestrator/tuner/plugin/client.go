package plugin

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/pluginhost"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// patience holds the timeouts of a plugin.
type patience struct{ start, call time.Duration }

// usual returns generous timeouts: a plugin may load a solver when it starts, and fit a model in a call.
func usual() patience { return patience{start: 30 * time.Second, call: 30 * time.Second} }

// A Client is a tuner in a separate process. Like every Tuner it is not safe for concurrent use, except for Close.
type Client struct {
	name     string
	patience patience
	// callContext returns the context of one call, with its timeout. A Tuner's methods have no context, so it derives
	// from the context of Launch.
	callContext func() (context.Context, context.CancelFunc)
	program     *pluginhost.Program
	service     outbidv1.TunerServiceClient
	// handle calls the plugin's Handle, through the channel if the plugin supports it.
	handle    func(context.Context, *outbidv1.HandleRequest) (*outbidv1.HandleResponse, error)
	validator *validator
	status    tuner.Status
	outlook   tuner.Outlook
	// each is set if the plugin can answer each of several events separately.
	each bool
	// failed is the first error. After it, the plugin is not called again.
	failed error
}

var _ tuner.Tuner = (*Client)(nil)

// Launch starts a plugin and configures it for a new sweep, or from a snapshot of a Client. The plugin's standard error
// goes to the logger. ctx covers all calls to the plugin, not only the launch. The caller must Close it.
func Launch(
	ctx context.Context, command []string, s tuner.Settings, snapshot []byte, logger *slog.Logger,
) (*Client, error) {
	return launch(ctx, command, s, snapshot, logger, usual())
}

func launch(
	ctx context.Context, command []string, s tuner.Settings, snapshot []byte, logger *slog.Logger, p patience,
) (*Client, error) {
	if len(command) == 0 || command[0] == "" {
		return nil, errors.New("tuner.plugin.command: is empty; name the plugin's program and its arguments")
	}
	c := &Client{name: name(command), patience: p}
	c.callContext = func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, p.call) }
	var own envelope
	if len(snapshot) > 0 {
		if err := own.decode(snapshot); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	var err error
	if c.validator, err = newValidator(s); err != nil {
		return nil, err
	}
	c.validator.validatorState = own.Guard
	if c.program, err = pluginhost.Start(ctx, pluginhost.Tuner, command, p.start, logger); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	c.service = outbidv1.NewTunerServiceClient(c.program.Conn())
	c.handle = func(ctx context.Context, req *outbidv1.HandleRequest) (*outbidv1.HandleResponse, error) {
		return c.service.Handle(ctx, req)
	}
	if err := c.configure(s, own.Plugin); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) configure(s tuner.Settings, snapshot []byte) error {
	ctx, cancel := c.callContext()
	defer cancel()
	resp, err := c.service.Configure(ctx, &outbidv1.ConfigureRequest{
		Protocol: protocol, Spec: s.Spec, Snapshot: snapshot,
	})
	if err != nil {
		return c.wrong("configure", err)
	}
	if resp.GetName() != "" {
		c.name = sanitize.Line(fmt.Sprintf("tuner plugin %s %s", resp.GetName(), resp.GetVersion()), limits.Name)
	}
	c.outlook, c.each = tuner.OutlookOf(resp.GetOutlook()), resp.GetEach()
	if resp.GetChannel() {
		c.handle = channel{c.program.Channel()}.handle
	}
	return c.call(nil, &outbidv1.HandleRequest{}) // gets the initial status
}

// Handle implements tuner.Tuner.
func (c *Client) Handle(event tuner.Event) ([]tuner.Action, error) { return c.HandleAll(event) }

// HandleAll sends several events in one call. The actions answer the last event.
func (c *Client) HandleAll(events ...tuner.Event) ([]tuner.Action, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	req := new(outbidv1.HandleRequest)
	for _, event := range events {
		if c.validator.isStale(event) {
			continue // the plugin ended that trial in an earlier answer
		}
		message, err := remote.ToEvent(event)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if err := c.validator.recordEvent(event); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		req.Events = append(req.Events, message)
	}
	if len(req.GetEvents()) == 0 {
		return nil, nil
	}
	var actions []tuner.Action
	err := c.call(func(resp *outbidv1.HandleResponse) (err error) {
		if actions, err = actionsOf(resp); err != nil {
			return err
		}
		return c.validator.check(events[len(events)-1], actions)
	}, req)
	if err != nil {
		return nil, err
	}
	return actions, nil
}

// HandleEach sends several events in one call and returns an answer to each, as if it had been sent alone. With an
// error it returns the answers before the failed one.
func (c *Client) HandleEach(events []tuner.Event) ([]remote.Answer, error) {
	if !c.each || len(events) == 1 {
		return c.handleInTurn(events)
	}
	if c.failed != nil {
		return nil, c.failed
	}
	req := &outbidv1.HandleRequest{Each: true}
	told := make([]bool, len(events))
	for i, event := range events {
		if c.validator.isStale(event) {
			continue // the plugin ended that trial in an earlier answer
		}
		message, err := remote.ToEvent(event)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		req.Events, told[i] = append(req.Events, message), true
	}
	said, err := c.askEach(req)
	if err != nil {
		return nil, err
	}
	answers := make([]remote.Answer, 0, len(events))
	for i, event := range events {
		if !told[i] {
			answers = append(answers, remote.Answer{Status: c.status, Outlook: c.outlook})
			continue
		}
		answer, err := c.answerOf(event, said[0])
		if err != nil {
			c.failed = fmt.Errorf("%s: %w", c.name, err)
			return answers, c.failed
		}
		answers, said = append(answers, answer), said[1:]
	}
	return answers, nil
}

// askEach returns the plugin's answer to each event.
func (c *Client) askEach(req *outbidv1.HandleRequest) ([]*outbidv1.HandleResponse, error) {
	if len(req.GetEvents()) == 0 {
		return nil, nil
	}
	ctx, cancel := c.callContext()
	defer cancel()
	resp, err := c.handle(ctx, req)
	if err != nil {
		return nil, c.wrong("handle an event", err)
	}
	if len(resp.GetEach()) != len(req.GetEvents()) {
		c.failed = fmt.Errorf("%s: got %d events but returned %d answers", c.name, len(req.GetEvents()), len(resp.GetEach()))
		return nil, c.failed
	}
	return resp.GetEach(), nil
}

func (c *Client) handleInTurn(events []tuner.Event) ([]remote.Answer, error) {
	answers := make([]remote.Answer, 0, len(events))
	for _, event := range events {
		actions, err := c.Handle(event)
		if err != nil {
			return answers, err
		}
		answers = append(answers, remote.Answer{Actions: actions, Status: c.status, Outlook: c.outlook})
	}
	return answers, nil
}

// answerOf validates and applies the plugin's answer to one of several events.
func (c *Client) answerOf(event tuner.Event, resp *outbidv1.HandleResponse) (remote.Answer, error) {
	if !c.validator.isStale(event) { // otherwise the plugin has ended the trial
		if err := c.validator.recordEvent(event); err != nil {
			return remote.Answer{}, err
		}
	}
	actions, err := actionsOf(resp)
	if err == nil {
		err = c.validator.check(event, actions)
	}
	if err != nil {
		return remote.Answer{}, err
	}
	c.take(resp)
	return remote.Answer{Actions: actions, Status: c.status, Outlook: c.outlook}, nil
}

func actionsOf(resp *outbidv1.HandleResponse) ([]tuner.Action, error) {
	var actions []tuner.Action
	for _, m := range resp.GetActions() {
		a, err := remote.FromAction(m)
		if err != nil {
			return nil, err
		}
		actions = append(actions, a)
	}
	return actions, nil
}

// take stores the status and outlook in an answer.
func (c *Client) take(resp *outbidv1.HandleResponse) {
	c.status = tuner.Status{Waiting: resp.GetWaiting(), Exhausted: resp.GetExhausted()}
	if resp.GetOutlook() != nil {
		c.outlook = tuner.OutlookOf(resp.GetOutlook())
	}
}

func (c *Client) call(take func(*outbidv1.HandleResponse) error, req *outbidv1.HandleRequest) error {
	ctx, cancel := c.callContext()
	defer cancel()
	resp, err := c.handle(ctx, req)
	if err != nil {
		return c.wrong("handle an event", err)
	}
	if take == nil && len(resp.GetActions()) > 0 {
		c.failed = fmt.Errorf("%s: returned %d actions without an event", c.name, len(resp.GetActions()))
		return c.failed
	}
	if take != nil {
		if err := take(resp); err != nil {
			c.failed = fmt.Errorf("%s: %w", c.name, err)
			return c.failed
		}
	}
	c.take(resp)
	return nil
}

// wrong describes the failure of a call and stores it in failed.
func (c *Client) wrong(what string, err error) error {
	said := status.Convert(err)
	switch {
	case c.program.Exited() || said.Code() == codes.Unavailable:
		c.program.Close() // waits for the rest of its output
		c.failed = fmt.Errorf("%s: it exited during the call to %s", c.name, what)
		if last := c.program.LastWords(); last != "" {
			c.failed = fmt.Errorf("%w; its last output is %q", c.failed, last)
		}
	case said.Code() == codes.DeadlineExceeded:
		c.failed = fmt.Errorf("%s: it took more than %v to %s", c.name, c.patience.call, what)
	case said.Code() == codes.Canceled:
		// The caller is shutting down; the plugin is not at fault.
		return fmt.Errorf("%s: %s: %w", c.name, what, context.Canceled)
	default:
		c.failed = fmt.Errorf("%s: %s: %s", c.name, what, sanitize.Line(said.Message(), limits.Detail))
	}
	return c.failed
}

// Status implements tuner.Tuner.
func (c *Client) Status() tuner.Status { return c.status }

// Outlook implements tuner.Tuner.
func (c *Client) Outlook() tuner.Outlook { return c.outlook }

// Snapshot implements tuner.Tuner. If it fails, the plugin continues; a restart then repeats earlier events instead.
func (c *Client) Snapshot() ([]byte, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	ctx, cancel := c.callContext()
	defer cancel()
	resp, err := c.service.Snapshot(ctx, &outbidv1.SnapshotRequest{})
	if err != nil {
		return nil, fmt.Errorf("%s: take a snapshot: %s", c.name, sanitize.Line(status.Convert(err).Message(), limits.Detail))
	}
	if len(resp.GetSnapshot()) == 0 {
		return nil, fmt.Errorf("%s: its snapshot is empty; restoring it would restart the sweep", c.name)
	}
	return envelope{Guard: c.validator.validatorState, Plugin: resp.GetSnapshot()}.encode()
}

// Name returns the plugin's name and version for display.
func (c *Client) Name() string { return c.name }

// Close asks the plugin to end and kills it after two seconds. It may be called more than once.
func (c *Client) Close() { c.program.Close() }

// An envelope is a Client's snapshot: that of the plugin and the state of the validator.
type envelope struct {
	Guard  validatorState
	Plugin []byte
}

func (e envelope) encode() ([]byte, error) {
	var buf bytes.Buffer
	if err := gob.NewEncoder(&buf).Encode(e); err != nil {
		return nil, fmt.Errorf("encode a snapshot: %w", err)
	}
	return buf.Bytes(), nil
}

func (e *envelope) decode(snapshot []byte) error {
	if err := gob.NewDecoder(bytes.NewReader(snapshot)).Decode(e); err != nil {
		return fmt.Errorf("%w: %w", tuner.ErrBadSnapshot, err)
	}
	if len(e.Plugin) == 0 || len(e.Guard.Targets) != len(e.Guard.Places) || len(e.Guard.Places) > math.MaxInt32 {
		return tuner.ErrBadSnapshot
	}
	return nil
}
