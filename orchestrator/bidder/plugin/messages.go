package plugin

import (
	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// noSpeeds is the index of unknown speeds.
const noSpeeds = -1

func toRequest(offer *bidder.Offer, states []*bidder.AppState) *outbidv1.BidRequest {
	req := &outbidv1.BidRequest{Round: offer.Round}
	for _, l := range offer.Lots {
		req.Lots = append(req.Lots, &outbidv1.OfferedLot{
			Node: l.Node, Rack: l.Rack, Type: l.Type, Free: int32(l.Free), Slots: toInt32s(l.Slots),
		})
	}
	if len(states) > 0 {
		for _, s := range states[0].Cluster {
			req.Cluster = append(req.Cluster, &outbidv1.Stock{Type: s.Type, Devices: int32(s.Devices), Machines: int32(s.Machines)})
		}
	}
	// The built-in bidder never fails; without its tables a plugin would only have less information.
	own, err := bidder.BuiltIn{}.Bid(offer, states)
	for i, s := range states {
		m := toAppState(s)
		if err == nil && i < len(own) {
			m.Own = toTable(&own[i])
		}
		req.Apps = append(req.Apps, m)
	}
	return req
}

// speedBook stores each model's speeds once in a state.
type speedBook struct {
	index map[*cluster.Speeds]int32
	list  []*outbidv1.SpeedTable
}

func (b *speedBook) add(s *cluster.Speeds) int32 {
	if s == nil {
		return noSpeeds
	}
	if i, ok := b.index[s]; ok {
		return i
	}
	table := &outbidv1.SpeedTable{Slowdown: s.S[:], Estimated: s.Estimated}
	for _, m := range s.Measured {
		table.Measured = append(table.Measured, &outbidv1.MeasuredSpeed{
			Type: m.Type, Devices: int32(m.Devices), Spread: int32(m.Locality), Rate: m.Rate,
		})
	}
	i := int32(len(b.list))
	b.index[s] = i
	b.list = append(b.list, table)
	return i
}

func toAppState(s *bidder.AppState) *outbidv1.AppState {
	book := &speedBook{index: map[*cluster.Speeds]int32{}}
	m := &outbidv1.AppState{
		Sweep: s.App, Tuner: s.Tuner, Weight: s.Weight, ElapsedSeconds: s.Elapsed, MeanApps: s.MeanApps,
		Free:       toInt32s(s.Free),
		MinDevices: int32(s.Demand.Min), MaxDevices: int32(s.Demand.Max), Spread: s.Demand.MultiNode,
		Types: s.Demand.Types, Exclude: s.Demand.Exclude, SpeedsIndex: book.add(s.Speeds),
		TotalSteps: s.TotalSteps, StepsDone: s.StepsDone, Finished: int32(s.Finished), Outlook: s.Outlook.Message(),
		Settings: s.Settings, Forks: int32(s.Forks), LeastForks: int32(s.LeastForks), Concurrency: int32(s.Concurrency),
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		m.Jobs = append(m.Jobs, &outbidv1.AppJob{
			Trial: j.Trial, Done: j.Done, Until: j.Until, Total: j.Total, Forecast: j.Forecast,
			MinDevices: int32(j.Min), MaxDevices: int32(j.Max), Spread: j.MultiNode, Types: j.Types, Exclude: j.Exclude,
			SpeedsIndex: book.add(j.Speeds), Held: toHolding(j.Held), Lost: toHolding(j.Lost), Leaving: j.Leaving,
			Forks: int32(j.Forks), LeastForks: int32(j.LeastForks),
		})
	}
	m.Speeds = book.list
	return m
}

func toHolding(h bidder.Holding) *outbidv1.Holding {
	if h.Devices == 0 {
		return nil
	}
	return &outbidv1.Holding{Type: h.Type, Devices: int32(h.Devices), Machines: int32(h.Machines), Rate: h.Rate}
}

func toInt32s(list []int) []int32 {
	var out []int32
	for _, n := range list {
		out = append(out, int32(n))
	}
	return out
}

func toInts(list []int32) []int {
	var out []int
	for _, n := range list {
		out = append(out, int(n))
	}
	return out
}

func fromRequest(req *outbidv1.BidRequest) (*bidder.Offer, []*bidder.AppState) {
	offer := &bidder.Offer{Round: req.GetRound()}
	for _, l := range req.GetLots() {
		offer.Lots = append(offer.Lots, bidder.Lot{
			Node: l.GetNode(), Rack: l.GetRack(), Type: l.GetType(), Free: int(l.GetFree()), Slots: toInts(l.GetSlots()),
		})
	}
	var stock []bidder.Stock
	for _, s := range req.GetCluster() {
		stock = append(stock, bidder.Stock{Type: s.GetType(), Devices: int(s.GetDevices()), Machines: int(s.GetMachines())})
	}
	var states []*bidder.AppState
	for _, m := range req.GetApps() {
		s := fromAppState(m)
		s.Cluster = stock
		states = append(states, s)
	}
	return offer, states
}

func fromAppState(m *outbidv1.AppState) *bidder.AppState {
	var book []*cluster.Speeds
	for _, table := range m.GetSpeeds() {
		s := &cluster.Speeds{Estimated: table.GetEstimated()}
		copy(s.S[:], table.GetSlowdown())
		for _, one := range table.GetMeasured() {
			s.Measured = append(s.Measured, cluster.Speed{
				Type: one.GetType(), Devices: int(one.GetDevices()), Locality: cluster.Locality(one.GetSpread()), Rate: one.GetRate(),
			})
		}
		book = append(book, s)
	}
	speeds := func(i int32) *cluster.Speeds {
		if i < 0 || int(i) >= len(book) {
			return nil
		}
		return book[i]
	}
	s := &bidder.AppState{
		App: m.GetSweep(), Tuner: m.GetTuner(), Weight: m.GetWeight(), Elapsed: m.GetElapsedSeconds(),
		MeanApps: m.GetMeanApps(), Free: toInts(m.GetFree()),
		Demand: cluster.Demand{
			Min: int(m.GetMinDevices()), Max: int(m.GetMaxDevices()), MultiNode: m.GetSpread(), Types: m.GetTypes(),
			Exclude: m.GetExclude(),
		},
		Speeds: speeds(m.GetSpeedsIndex()), TotalSteps: m.GetTotalSteps(), StepsDone: m.GetStepsDone(),
		Finished: int(m.GetFinished()), Outlook: tuner.OutlookOf(m.GetOutlook()), Settings: m.GetSettings(),
		Forks: int(m.GetForks()), LeastForks: int(m.GetLeastForks()), Concurrency: int(m.GetConcurrency()),
	}
	for _, j := range m.GetJobs() {
		s.Jobs = append(s.Jobs, bidder.Job{
			Trial: j.GetTrial(), Done: j.GetDone(), Until: j.GetUntil(), Total: j.GetTotal(), Forecast: j.GetForecast(),
			Min: int(j.GetMinDevices()), Max: int(j.GetMaxDevices()), MultiNode: j.GetSpread(), Types: j.GetTypes(),
			Exclude: j.GetExclude(), Speeds: speeds(j.GetSpeedsIndex()),
			Held: fromHolding(j.GetHeld()), Lost: fromHolding(j.GetLost()), Leaving: j.GetLeaving(),
			Forks: int(j.GetForks()), LeastForks: int(j.GetLeastForks()),
		})
	}
	return s
}

func fromHolding(m *outbidv1.Holding) bidder.Holding {
	return bidder.Holding{
		Type: m.GetType(), Devices: int(m.GetDevices()), Machines: int(m.GetMachines()), Rate: m.GetRate(),
	}
}

func toResponse(tables []bidder.Table) *outbidv1.BidResponse {
	resp := &outbidv1.BidResponse{}
	for i := range tables {
		resp.Tables = append(resp.Tables, toTable(&tables[i]))
	}
	return resp
}

func toTable(t *bidder.Table) *outbidv1.BidTable {
	return &outbidv1.BidTable{Rho: t.Rho, IdealSeconds: t.Ideal, Rows: t.Bids(), Refused: t.Refused}
}

func fromTable(m *outbidv1.BidTable) bidder.Table {
	return bidder.Table{Rho: m.GetRho(), Ideal: m.GetIdealSeconds(), Rows: bidder.RowsOf(m.GetRows())}
}
