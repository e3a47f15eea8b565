package state

import (
	"reflect"

	"google.golang.org/protobuf/reflect/protoreflect"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Kind is a row of the table of events: what one kind of event means to each who follows them. Its values are the words
// that docs/reference/events.md prints.
type Kind struct {
	// Name of the event's message.
	Name string
	// About says whose event it is.
	About About
	// Tuner is what it means to the sweep's tuner, Policy to the scheduling policy.
	Tuner  TunerPart
	Policy PolicyPart
	// Asks: devices, or trials that want some, may have changed, so that the policy is asked again.
	Asks bool
	// Advances: the sweep may have reached a limit or its end, and is looked at again before the step ends.
	Advances bool
	// View is what changes of what policies see.
	View ViewPart
	// Orders: the workers that hold the trial's lease are told.
	Orders bool
	// Readers is what it is to those who read the ledger's batches without a state.
	Readers ReaderPart
	// Outlook: what the sweep's tuner will do in all may be something else.
	Outlook bool

	fold func(*folding, *outbidv1.Event) error
	// courses are what it does to those that have a life of their own.
	courses []*course
	// creates: the trial exists only once the event is folded in.
	creates bool
	// news says, before the event is folded in, whether it is news to the tuner.
	news func(*folding, *outbidv1.Event) bool
	// sweep, trial and node name what the event is about.
	sweep func(*outbidv1.Event) string
	trial func(*outbidv1.Event) TrialRef
	node  func(*outbidv1.Event) string
	// step is how far it says that a fork was.
	step func(*outbidv1.Event) int64
	// body is the message that says what happened; decision is what it is in its round.
	body     func(*outbidv1.Event) message
	decision func(*outbidv1.Event) *outbidv1.Decision
}

// About says whose event a kind is.
type About string

// What events are about.
const (
	AboutLedger About = "ledger"
	AboutNode   About = "node"
	AboutSweep  About = "sweep"
	AboutTrial  About = "trial"
	AboutTenant About = "tenant"
)

// TunerPart is what an event means to a sweep's tuner.
type TunerPart string

// What events mean to tuners.
const (
	TunerStarts    TunerPart = "starts"
	TunerArchives  TunerPart = "is archived when its sweep has ended, and taken up when that goes on"
	TunerWidens    TunerPart = "is taken up if need be, and hears of it"
	TunerForgotten TunerPart = "is forgotten"
	TunerAsked     TunerPart = "was asked; is asked again on replay"
	TunerAnswers   TunerPart = "has answered, in a process of its own; what it wants follows"
	TunerRecorded  TunerPart = "if in a process of its own: what it answers is in the ledger from here on"
	TunerHears     TunerPart = "hears of it"
	TunerHearsNews TunerPart = "hears of it if it is news"
)

// PolicyPart is what an event means to the policy, beside having to decide.
type PolicyPart string

// What events mean to policies.
const (
	PolicyStarts  PolicyPart = "decided from here on; takes over on replay"
	PolicyBegins  PolicyPart = "begins to decide, on what there is here"
	PolicyDecided PolicyPart = "decided; decides again on replay"
)

// ViewPart is what an event changes of the policies' view.
type ViewPart string

// What events change of the view.
const (
	ViewNodes   ViewPart = "nodes"
	ViewTenants ViewPart = "tenants"
	ViewSweep   ViewPart = "sweep"
	ViewWaiting ViewPart = "sweep, and its trials that wait"
	ViewTrial   ViewPart = "sweep and trial"
)

// ReaderPart is what an event is to those who read the ledger's batches without a state: the history of reports, and whoever
// lists rounds.
type ReaderPart string

// What events are to readers of batches.
const (
	ReadersReport  ReaderPart = "a report"
	ReadersForget  ReaderPart = "forget the sweep"
	ReadersRound   ReaderPart = "a round"
	ReadersDecided ReaderPart = "a decision of its round"
	ReadersAside   ReaderPart = "may stand between a round's decisions"
	ReadersLeader  ReaderPart = "a new leader"
)

// A part is one cell of a row. Cells that are not set mean nothing to whom they are about.
type part interface{ set(*Kind) }

func (p TunerPart) set(k *Kind)  { k.Tuner = p }
func (p PolicyPart) set(k *Kind) { k.Policy = p }
func (p ViewPart) set(k *Kind)   { k.View = p }
func (p ReaderPart) set(k *Kind) { k.Readers = p }

// decides is a decision of a round, as the API lists it.
type decides func(*outbidv1.Event) *outbidv1.Decision

func (d decides) set(k *Kind) { k.Readers, k.decision = ReadersDecided, d }

// seenAt says how far a fork was.
type seenAt func(*outbidv1.Event) int64

func (s seenAt) set(k *Kind) { k.step = s }

// A flag is a cell that is there or not.
type flag int

const (
	asks flag = iota
	advances
	orders
	outlook
	createsTrial
)

func (f flag) set(k *Kind) {
	switch f {
	case asks:
		k.Asks = true
	case advances:
		k.Advances = true
	case orders:
		k.Orders = true
	case outlook:
		k.Outlook = true
	case createsTrial:
		k.creates = true
	}
}

// newsIf is told to the tuner if f says so before the event is folded in.
func newsIf[M message](body func(*outbidv1.Event) M, f func(*folding, M) bool) part {
	return news(func(in *folding, e *outbidv1.Event) bool { return f(in, body(e)) })
}

type news func(*folding, *outbidv1.Event) bool

func (f news) set(k *Kind) { k.Tuner, k.news = TunerHearsNews, f }

// TrialRef is what every event about a trial has.
type TrialRef interface {
	GetSweep() string
	GetTrial() int32
}

// message is what every event's body is.
type message interface{ ProtoReflect() protoreflect.Message }

func nameOf[M message]() string {
	var none M
	return string(none.ProtoReflect().Descriptor().Name())
}

// of makes a row for an event about the ledger or a node, or about a sweep that need not exist.
func of[M message](about About, body func(*outbidv1.Event) M, fold func(*folding, M) error, parts ...part) *Kind {
	k := &Kind{
		Name: nameOf[M](), About: about,
		fold: func(f *folding, e *outbidv1.Event) error { return fold(f, body(e)) },
		body: func(e *outbidv1.Event) message { return body(e) },
	}
	for _, p := range parts {
		p.set(k)
	}
	return k
}

// ofSweep makes a row for an event about a sweep.
func ofSweep[M interface {
	message
	GetSweep() string
}](body func(*outbidv1.Event) M, fold func(*folding, M) error, parts ...part,
) *Kind {
	k := of(AboutSweep, body, fold, parts...)
	k.sweep = func(e *outbidv1.Event) string { return body(e).GetSweep() }
	return k
}

// ofTrial makes a row for an event about a trial.
func ofTrial[M interface {
	message
	TrialRef
}](body func(*outbidv1.Event) M, fold func(*folding, M) error, parts ...part,
) *Kind {
	k := of(AboutTrial, body, fold, parts...)
	k.sweep = func(e *outbidv1.Event) string { return body(e).GetSweep() }
	k.trial = func(e *outbidv1.Event) TrialRef { return body(e) }
	return k
}

// lease is the id of the lease that an event about a trial names, if it names one. Checkpoints of old ledgers do not say.
func (k *Kind) lease(e *outbidv1.Event) (id uint64, named bool) {
	switch l := k.trial(e).(type) {
	case interface{ GetLeaseId() uint64 }:
		return l.GetLeaseId(), true
	case interface{ GetCheckpoint() *outbidv1.Checkpoint }:
		return l.GetCheckpoint().GetLeaseId(), l.GetCheckpoint().GetLeaseId() > 0
	default:
		return 0, false
	}
}

// Table finds the row of an event. It never changes.
type Table struct{ rows map[reflect.Type]*Kind }

// NewTable returns the table of events for those who read them without a state.
func NewTable() Table {
	rows := map[string]*Kind{}
	for _, k := range Kinds() {
		rows[k.Name] = k
	}
	all := map[reflect.Type]*Kind{}
	empty := (&outbidv1.Event{}).ProtoReflect()
	fields := empty.Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if row := rows[string(field.Message().Name())]; row != nil {
			e := &outbidv1.Event{}
			e.ProtoReflect().Set(field, empty.NewField(field))
			all[reflect.TypeOf(e.GetKind())] = row
		}
	}
	return Table{all}
}

// Kind is an event's row in the table; nil for one that this version does not know.
func (t Table) Kind(e *outbidv1.Event) *Kind {
	if e.GetKind() == nil {
		return nil
	}
	return t.rows[reflect.TypeOf(e.GetKind())]
}

// Kind is Table.Kind.
func (st *State) Kind(e *outbidv1.Event) *Kind { return st.table.Kind(e) }

// TrialOf is the body of an event about a trial, nil for others.
func (st *State) TrialOf(e *outbidv1.Event) TrialRef {
	if k := st.Kind(e); k != nil && k.trial != nil {
		return k.trial(e)
	}
	return nil
}
