package plugin

import (
	"context"
	"os"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// server implements TunerService with one tuner.
type server struct {
	outbidv1.UnimplementedTunerServiceServer
	factory Factory
	// stderr is restored as the process's os.Stderr, or nil if it was not replaced.
	stderr *os.File
	// channel is set if Handle is also called through the channel.
	channel bool

	mu sync.Mutex
	// tuner is nil until Configure.
	tuner tuner.Tuner
	// outlook is the one that was last sent to the orchestrator.
	outlook *outbidv1.Outlook
}

// NewServer returns the service that Serve serves, for programs that host it themselves.
func NewServer(f Factory) outbidv1.TunerServiceServer { return &server{factory: f} }

// Configure implements outbidv1.TunerServiceServer.
func (s *server) Configure(
	_ context.Context, req *outbidv1.ConfigureRequest,
) (*outbidv1.ConfigureResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.GetProtocol() != protocol {
		return nil, status.Errorf(codes.FailedPrecondition, "unknown protocol %d; this plugin implements %d",
			req.GetProtocol(), protocol)
	}
	if s.stderr != nil {
		// go-plugin sends os.Stderr over the connection, which loses the last output before a crash.
		os.Stderr = s.stderr
	}
	settings := tuner.Settings{Spec: req.GetSpec()}
	var err error
	if len(req.GetSnapshot()) > 0 {
		s.tuner, err = s.factory.Restore(settings, req.GetSnapshot())
	} else {
		s.tuner, err = s.factory.New(settings)
	}
	if err != nil {
		s.tuner = nil
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s.outlook = s.tuner.Outlook().Message()
	return &outbidv1.ConfigureResponse{
		Name: s.factory.Name, Version: s.factory.Version, Outlook: s.outlook, Each: true, Channel: s.channel,
	}, nil
}

// Handle implements outbidv1.TunerServiceServer.
func (s *server) Handle(_ context.Context, req *outbidv1.HandleRequest) (*outbidv1.HandleResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tuner == nil {
		return nil, status.Error(codes.FailedPrecondition, "Handle was called before Configure")
	}
	if !req.GetEach() {
		return s.handle(req.GetEvents())
	}
	resp := &outbidv1.HandleResponse{}
	over := map[int32]bool{}
	for _, event := range req.GetEvents() {
		one := []*outbidv1.TunerEvent{event}
		if trial, of := trialOf(event); of && over[trial] {
			one = nil
		}
		answer, err := s.handle(one)
		if err != nil {
			return nil, err
		}
		for _, a := range answer.GetActions() {
			if end := a.GetEnd(); end != nil {
				over[end.GetTrial()] = true
			}
		}
		resp.Each = append(resp.Each, answer)
	}
	return resp, nil
}

// trialOf returns the trial that an event concerns; of is false if it concerns none.
func trialOf(event *outbidv1.TunerEvent) (trial int32, of bool) {
	switch k := event.GetKind().(type) {
	case *outbidv1.TunerEvent_Reported:
		return k.Reported.GetTrial(), true
	case *outbidv1.TunerEvent_Reached:
		return k.Reached.GetTrial(), true
	case *outbidv1.TunerEvent_Exited:
		return k.Exited.GetTrial(), true
	default:
		return 0, false
	}
}

// handle passes events to the tuner and answers them together. The caller holds the lock.
func (s *server) handle(events []*outbidv1.TunerEvent) (*outbidv1.HandleResponse, error) {
	resp := &outbidv1.HandleResponse{}
	for _, message := range events {
		event, err := remote.FromEvent(message)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		actions, err := s.tuner.Handle(event)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		for _, a := range actions {
			message, err := remote.ToAction(a)
			if err != nil {
				return nil, status.Error(codes.Internal, err.Error())
			}
			resp.Actions = append(resp.Actions, message)
		}
		if _, ok := event.(tuner.Extended); !ok {
			continue
		}
		if now := s.tuner.Outlook().Message(); !proto.Equal(now, s.outlook) {
			s.outlook, resp.Outlook = now, now
		}
	}
	state := s.tuner.Status()
	resp.Waiting, resp.Exhausted = state.Waiting, state.Exhausted
	return resp, nil
}

// Snapshot implements outbidv1.TunerServiceServer.
func (s *server) Snapshot(context.Context, *outbidv1.SnapshotRequest) (*outbidv1.SnapshotResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tuner == nil {
		return nil, status.Error(codes.FailedPrecondition, "Snapshot was called before Configure")
	}
	snapshot, err := s.tuner.Snapshot()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &outbidv1.SnapshotResponse{Snapshot: snapshot}, nil
}
