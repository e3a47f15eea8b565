package api

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/explain/evidence"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// service implements the gRPC service: it checks requests and passes them to Control. Each part owns the calls of an area.
type service struct {
	// Without a default implementation, the compiler finds calls that no part implements.
	outbidv1.UnsafeOutbidServiceServer
	sweepService
	clusterService
	storeService
	logService
	roundService
	secretService
	workerService
	tenantService
	explainService
	forecastService
	auditService
	accountService
	usageService
	accessService
	retentionService
	simulateService
}

// newService returns the service of a server. verify is nil if it cannot check the files of the server.
func newService(cfg Config, blobs *blobBook, bound *throttle, encodings *sweepEncodings, asCaller func() evidence.API) *service {
	all := lookup{cfg.Control}
	s := &service{
		clusterService: clusterService{control: cfg.Control, verify: cfg.Verify, simulated: policiesOf(cfg.WhatIf)},
		storeService:   storeService{lookup: all, store: cfg.Store, blobs: blobs},
		logService:     logService{lookup: all, logs: cfg.Logs},
		roundService:   roundService{cfg.Control},
		secretService:  secretService{cfg.Secrets},
		workerService:  workerService{cfg.Workers},
		auditService:   auditService{cfg.Audit},
		accountService: accountService{cfg.Accounts, cfg.Tokens},
		tenantService:  tenantService{control: cfg.Control, limits: cfg.Limits, blobs: blobs, throttle: bound},
		usageService:   usageService{cfg.Usage, cfg.Prices},
		accessService:  accessService{cfg.Control, cfg.Tokens},

		retentionService: retentionService{cfg.Retention},
	}
	s.forecastService = forecastService{lookup: all, computing: make(chan struct{}, 1)}
	simulates := newSimulator(cfg.WhatIf)
	s.explainService = explainService{lookup: all, simulator: simulates, asCaller: asCaller, logger: cfg.Logger}
	s.simulateService = simulateService{lookup: all, simulator: simulates, callers: map[string]bool{}}
	s.sweepService = sweepService{
		lookup: all, store: cfg.Store, logs: cfg.Logs, logger: cfg.Logger, blobs: blobs, feeds: newFeeds(cfg.Control), tables: &trialTables{},
		secrets: &s.secretService, tenants: &s.tenantService, throttle: bound, alone: cfg.Alone, traces: cfg.Traces,
		encodings: encodings, maxSpec: func() int { return limits.Spec(cfg.MaxPayload()) },
	}
	return s
}

// lookup finds the sweep or trial that a request names.
type lookup struct{ control Control }

// sweep returns the sweep that a request names.
func (l *lookup) sweep(id string) (*outbidv1.Sweep, error) {
	if id == "" {
		return nil, errNoSweep()
	}
	return l.control.Sweep(id)
}

func errNoSweep() error {
	return fieldError("sweep", `is empty; give a sweep's id such as "digits-1"`)
}

func (l *lookup) trials(sweep, order string, from, n int) ([]*outbidv1.Trial, error) {
	if order == "best" {
		return l.control.BestTrials(sweep, n, from)
	}
	return l.control.Trials(sweep, int32(from), n)
}

// trial returns the trial that a request names.
func (l *lookup) trial(sweep string, n int32) (*outbidv1.Trial, error) {
	if sweep == "" {
		return nil, errNoSweep()
	}
	if n < 0 {
		return nil, fieldError("trial", "%d is below 0; trials count from 0", n)
	}
	return l.control.Trial(sweep, n)
}

// sweepService has the calls about sweeps and their trials.
type sweepService struct {
	lookup
	store   objects.Store
	logs    Logs
	logger  *slog.Logger
	blobs   *blobBook
	feeds   *feeds
	tables  *trialTables
	secrets *secretService
	tenants *tenantService
	// throttle limits the sweeps that each tenant submits or extends in a minute.
	throttle *throttle
	// traces may be nil.
	traces    Traces
	encodings *sweepEncodings
	// alone reports whether no further nodes can join.
	alone func() bool
	// maxSpec returns the maximum size of a sweep's spec in bytes.
	maxSpec func() int
}

// ListSweeps implements the service.
func (s *sweepService) ListSweeps(ctx context.Context, req *outbidv1.ListSweepsRequest) (
	*outbidv1.ListSweepsResponse, error,
) {
	size, err := pageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	list := "sweeps " + req.GetTenant()
	token, err := parsePageToken(req.GetPageToken(), list)
	if err != nil {
		return nil, err
	}
	who, skip := caller(ctx), token.After != ""
	var found []*outbidv1.Sweep
	for _, sweep := range s.control.Sweeps() {
		if skip {
			skip = sweep.GetId() != token.After
			continue
		}
		tenant := tenantOf(sweep.GetSpec())
		if who.owns(tenant) && (req.GetTenant() == "" || req.GetTenant() == tenant) {
			found = append(found, sweep)
		}
	}
	n := fitBy(found[:min(size, len(found))], maxAnswer, s.encodings.size)
	resp := &outbidv1.ListSweepsResponse{Sweeps: found[:n]}
	if n < len(found) {
		resp.NextPageToken = pageToken{List: list, After: found[n-1].GetId()}.String()
	}
	return resp, nil
}

// GetSweep implements the service.
func (s *sweepService) GetSweep(_ context.Context, req *outbidv1.GetSweepRequest) (*outbidv1.GetSweepResponse, error) {
	sweep, err := s.sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	return &outbidv1.GetSweepResponse{Sweep: sweep}, nil
}

// ListTrials implements the service.
func (s *sweepService) ListTrials(_ context.Context, req *outbidv1.ListTrialsRequest) (
	*outbidv1.ListTrialsResponse, error,
) {
	if req.GetSweep() == "" {
		return nil, errNoSweep()
	}
	size, err := pageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	order := req.GetOrder()
	if order == "" {
		order = "number"
	}
	if order != "number" && order != "best" {
		return nil, fieldError("order", `%q: must be "number" or "best"`, order)
	}
	list := "trials " + req.GetSweep() + " " + order
	token, err := parsePageToken(req.GetPageToken(), list)
	if err != nil {
		return nil, err
	}
	trials, err := s.trials(req.GetSweep(), order, token.Next, size+1) // one more shows whether there is another page
	if err != nil {
		return nil, err
	}
	n := fit(trials[:min(size, len(trials))], maxAnswer)
	resp := &outbidv1.ListTrialsResponse{Trials: trials[:n]}
	if n < len(trials) {
		resp.NextPageToken = pageToken{List: list, Next: token.Next + n}.String()
	}
	return resp, nil
}

// GetTrial implements the service.
func (s *sweepService) GetTrial(_ context.Context, req *outbidv1.GetTrialRequest) (*outbidv1.GetTrialResponse, error) {
	trial, err := s.trial(req.GetSweep(), req.GetTrial())
	if err != nil {
		return nil, err
	}
	return &outbidv1.GetTrialResponse{Trial: trial}, nil
}

// ControlSweep implements the service.
func (s *sweepService) ControlSweep(ctx context.Context, req *outbidv1.ControlSweepRequest) (
	*outbidv1.ControlSweepResponse, error,
) {
	if req.GetSweep() == "" {
		return nil, errNoSweep()
	}
	if _, known := outbidv1.SweepCommand_name[int32(req.GetCommand())]; !known || req.GetCommand() == 0 {
		return nil, fieldError("command", "%q: must be SWEEP_COMMAND_PAUSE, SWEEP_COMMAND_RESUME or SWEEP_COMMAND_STOP",
			req.GetCommand())
	}
	if err := s.control.Command(ctx, req.GetSweep(), req.GetCommand(), caller(ctx).Name); err != nil {
		return nil, err
	}
	sweep, err := s.control.Sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	return &outbidv1.ControlSweepResponse{Sweep: sweep}, nil
}

// AnnotateSweep implements the service. Control has the old annotation, so it checks the new one.
func (s *sweepService) AnnotateSweep(ctx context.Context, req *outbidv1.AnnotateSweepRequest) (
	*outbidv1.AnnotateSweepResponse, error,
) {
	if req.GetSweep() == "" {
		return nil, errNoSweep()
	}
	if req.Description == nil && len(req.GetAddTags()) == 0 && len(req.GetRemoveTags()) == 0 {
		return nil, fieldError("description", "is missing; give it, add_tags or remove_tags")
	}
	if err := s.control.Annotate(ctx, req, caller(ctx).Name); err != nil {
		return nil, err
	}
	sweep, err := s.control.Sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	return &outbidv1.AnnotateSweepResponse{Sweep: sweep}, nil
}

// ControlTrial implements the service.
func (s *sweepService) ControlTrial(ctx context.Context, req *outbidv1.ControlTrialRequest) (
	*outbidv1.ControlTrialResponse, error,
) {
	if req.GetSweep() == "" {
		return nil, errNoSweep()
	}
	var do func(ctx context.Context, sweep string, trial int32, reason, actor string) error
	switch req.GetCommand() {
	case outbidv1.TrialCommand_TRIAL_COMMAND_STOP:
		do = s.control.StopTrial
	case outbidv1.TrialCommand_TRIAL_COMMAND_RETRY:
		do = s.control.RetryTrial
	default:
		return nil, fieldError("command", "%q: must be TRIAL_COMMAND_STOP or TRIAL_COMMAND_RETRY", req.GetCommand())
	}
	if err := sanitize.Check(req.GetReason(), limits.Detail); err != nil {
		return nil, fieldError("reason", "%v", err)
	}
	if err := do(ctx, req.GetSweep(), req.GetTrial(), req.GetReason(), caller(ctx).Name); err != nil {
		return nil, err
	}
	trial, err := s.trial(req.GetSweep(), req.GetTrial())
	if err != nil {
		return nil, err
	}
	return &outbidv1.ControlTrialResponse{Trial: trial}, nil
}

// AskTrial implements the service.
func (s *sweepService) AskTrial(ctx context.Context, req *outbidv1.AskTrialRequest) (*outbidv1.AskTrialResponse, error) {
	if req.GetSweep() == "" {
		return nil, errNoSweep()
	}
	if err := sanitize.Check(req.GetClient(), limits.Name); err != nil {
		return nil, fieldError("client", "%v", err)
	}
	return s.control.Ask(ctx, req.GetSweep(), req.GetClient())
}

// TellTrial implements the service.
func (s *sweepService) TellTrial(ctx context.Context, req *outbidv1.TellTrialRequest) (
	*outbidv1.TellTrialResponse, error,
) {
	if req.GetSweep() == "" {
		return nil, errNoSweep()
	}
	if req.GetTrial() < 0 {
		return nil, fieldError("trial", "%d is below 0; trials count from 0", req.GetTrial())
	}
	for i, r := range req.GetReports() {
		if r.GetStep() < 0 {
			return nil, fieldError("reports", "report %d is of step %d; steps count up from 0", i, r.GetStep())
		}
		if n := proto.Size(r); n > limits.Report {
			return nil, fieldError("reports", "report %d, of step %d, has %d bytes; at most %d are allowed", i, r.GetStep(), n,
				limits.Report)
		}
	}
	// The state keeps one line.
	first, _, _ := strings.Cut(strings.TrimSpace(req.GetError()), "\n")
	req.Error = sanitize.Line(first, limits.Detail)
	return s.control.Tell(ctx, req)
}

// sweepEnded reports whether a sweep has ended. It continues only if a user extends it.
func sweepEnded(state outbidv1.SweepState) bool {
	return slices.Contains([]outbidv1.SweepState{
		outbidv1.SweepState_SWEEP_STATE_DONE, outbidv1.SweepState_SWEEP_STATE_STOPPED,
		outbidv1.SweepState_SWEEP_STATE_FAILED,
	}, state)
}

// trialEnded reports whether a trial has ended.
func trialEnded(state outbidv1.TrialState) bool {
	return state >= outbidv1.TrialState_TRIAL_STATE_COMPLETED
}
