package worker

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/gang"
	"github.com/outbid-dev/outbid/worker/session"
)

// gang returns the part of a gang that runs here. Without a network its processes meet on the loopback address.
func (s *starter) gang(f *fork) *outbidv1.Gang {
	g := f.body.GetGang()
	if g == nil || s.cfg.TrialNetwork != confine.NetworkNone {
		return g
	}
	g = proto.CloneOf(g)
	g.Address = "127.0.0.1"
	return g
}

// programGang returns the part of a program's gang that runs here. If that includes rank 0, its ports are claimed until
// the program ends. The processes of a function claim theirs themselves.
func (s *starter) programGang(f *fork) (*outbidv1.Gang, error) {
	g := s.gang(f)
	if g == nil || g.GetFirstRank() > 0 || s.cfg.TrialNetwork == confine.NetworkNone {
		return g, nil
	}
	g, release, err := gang.ClaimPorts(g)
	if err != nil {
		return nil, s.nodeFailure(err)
	}
	f.files.atEnd(release)
	return g, nil
}

// startSessions starts the process of a function, or one for each rank of a gang that runs here.
func (s *starter) startSessions(ctx context.Context, f *fork, spec session.Spec, a *outbidv1.TrialAssignment) (training, error) {
	g := s.gang(f)
	if g == nil {
		return startSession(s.sessions.Start(ctx, spec, a, f))
	}
	size := gang.Size(g, len(f.body.GetDevices()))
	for local := 1; local < size; local++ {
		if err := os.Mkdir(rankScratch(f, local), 0o700); err != nil {
			return nil, s.nodeFailure(err)
		}
	}
	in, err := s.confiner.New(ctx, spec.Limits)
	if err != nil {
		return nil, s.nodeFailure(err)
	}
	f.files.atEnd(in.Close)
	if err := f.files.setConfinement(in); err != nil {
		return nil, s.nodeFailure(err)
	}
	spec.In, spec.Prepare, spec.Fresh = in, nil, true // the libraries of gangs keep their connections in the process
	group, err := gang.Start(ctx, gang.Config{
		Gang: g, Size: size, Node: s.cfg.Node, Trial: f,
		Launch: func(ctx context.Context, local int, trial session.Trial) (gang.Process, error) {
			own, rank := spec, proto.CloneOf(a)
			own.Env = append(spec.Env[:len(spec.Env):len(spec.Env)], gang.Environment(g, f.ref, local, size)...)
			if g.GetPerDevice() {
				own.Devices = f.body.GetDevices()[local : local+1]
			}
			rank.Scratch = rankScratch(f, local)
			rank.Rank = &outbidv1.GangRank{
				Rank: g.GetFirstRank() + int32(local), WorldSize: g.GetRanks(), LocalRank: int32(local),
				Address: g.GetAddress(), ControlPort: g.GetControlPort(), Port: g.GetPort(), Secret: g.GetSecret(),
			}
			return startSession(s.sessions.Start(ctx, own, rank, trial))
		},
	})
	if err != nil {
		return nil, err
	}
	return group, nil
}

// startSession converts a session for callers that need an interface.
func startSession(sess *session.Session, err error) (training, error) {
	if err != nil {
		return nil, err
	}
	return sess, nil
}

// rankScratch returns the directory for the files of a local rank.
func rankScratch(f *fork, local int) string {
	if local == 0 {
		return f.files.trialDir()
	}
	return filepath.Join(f.files.trialDir(), "rank-"+strconv.Itoa(local))
}

// withKnownWork returns a body whose function is in the field of functions without a gang.
func withKnownWork(body *outbidv1.AssignmentBody) *outbidv1.AssignmentBody {
	fn := body.GetWorkload().GetGangFunction()
	if fn == nil {
		return body
	}
	body = proto.CloneOf(body)
	body.Workload.Kind = &outbidv1.WorkloadBody_Function{Function: fn}
	return body
}
