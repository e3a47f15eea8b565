package state

import (
	"reflect"

	"google.golang.org/protobuf/reflect/protoreflect"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Kind is a row of the table of events: what a kind of event means to each component that follows events. Its texts
// are printed in docs/reference/events.md.
type Kind struct {
	// Name of the event's message.
	Name string
	// About is what the event concerns.
	About About
	// Tuner is what the event means to the sweep's tuner, and Policy to the scheduling policy.
	Tuner  TunerPart
	Policy PolicyPart
	// Asks causes a round, because the devices or the trials that need some may have changed.
	Asks bool
	// Advances causes a check of the sweep before the step ends, because it may have reached a limit or its end.
	Advances bool
	// View is the part of the policies' view that changes.
	View ViewPart
	// Orders sends orders to the workers that hold the trial's lease.
	Orders bool
	// Readers is what the event means to readers of the ledger that do not compute a state.
	Readers ReaderPart
	// Outlook reports that the tuner's outlook may change.
	Outlook bool

	fold func(*foldContext, *outbidv1.Event) error
	// lifecycles are the transitions that the event makes.
	lifecycles []*lifecycle
	// creates reports that the trial exists only after the event.
	creates bool
	// news reports, before the event is applied, whether the tuner gets it.
	news func(*foldContext, *outbidv1.Event) bool
	// sweep, trial and node return what the event is about.
	sweep func(*outbidv1.Event) string
	trial func(*outbidv1.Event) TrialRef
	node  func(*outbidv1.Event) string
	// step returns the step of the fork.
	step func(*outbidv1.Event) int64
	// body returns the message of the event; decision is what the event decides in its round.
	body     func(*outbidv1.Event) message
	decision func(*outbidv1.Event) *outbidv1.Decision
}

// About is what a kind of event concerns.
type About string

// Values of About.
const (
	AboutLedger About = "ledger"
	AboutNode   About = "node"
	AboutSweep  About = "sweep"
	AboutTrial  About = "trial"
	AboutTenant About = "tenant"
)

// TunerPart is what an event means to a sweep's tuner.
type TunerPart string

// Values of TunerPart.
const (
	TunerStarts    TunerPart = "starts"
	TunerArchives  TunerPart = "is archived when its sweep ends, and restored when the sweep continues"
	TunerWidens    TunerPart = "is restored if archived, then notified"
	TunerReturns   TunerPart = "is restored if archived; is not notified"
	TunerForgotten TunerPart = "is forgotten"
	TunerAsked     TunerPart = "was asked; is asked again on replay"
	TunerAnswers   TunerPart = "if remote: has answered; its actions follow"
	TunerHears     TunerPart = "is notified"
	TunerHearsNews TunerPart = "is notified if the event is new to it"
)

// PolicyPart is what an event means to the policy besides causing a round.
type PolicyPart string

// Values of PolicyPart.
const (
	PolicyStarts  PolicyPart = "decided from here on; is installed on replay"
	PolicyBegins  PolicyPart = "begins to decide on the current view"
	PolicyDecided PolicyPart = "decided; decides again on replay"
)

// ViewPart is what an event changes in the policies' view.
type ViewPart string

// Values of ViewPart.
const (
	ViewNodes   ViewPart = "nodes"
	ViewTenants ViewPart = "tenants"
	ViewSweep   ViewPart = "sweep"
	ViewWaiting ViewPart = "sweep and its waiting trials"
	ViewTrial   ViewPart = "sweep and trial"
)

// ReaderPart is what an event means to readers of the ledger that do not compute a state: the history of reports, and
// lists of rounds.
type ReaderPart string

// Values of ReaderPart.
const (
	ReadersReport  ReaderPart = "a report"
	ReadersForget  ReaderPart = "forget the sweep"
	ReadersRound   ReaderPart = "a round"
	ReadersDecided ReaderPart = "a decision of its round"
	ReadersAside   ReaderPart = "may come between a round's decisions"
	ReadersLeader  ReaderPart = "a new leader"
)

// A part is a cell of a row. Cells that are not set have no effect.
type part interface{ set(*Kind) }

func (p TunerPart) set(k *Kind)  { k.Tuner = p }
func (p PolicyPart) set(k *Kind) { k.Policy = p }
func (p ViewPart) set(k *Kind)   { k.View = p }
func (p ReaderPart) set(k *Kind) { k.Readers = p }

// decides returns the decision of a round in an event, in the API's form.
type decides func(*outbidv1.Event) *outbidv1.Decision

func (d decides) set(k *Kind) { k.Readers, k.decision = ReadersDecided, d }

// seenAt returns the step of a fork in an event.
type seenAt func(*outbidv1.Event) int64

func (s seenAt) set(k *Kind) { k.step = s }

// A flag is a cell that is either set or not.
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

// newsIf passes an event to the tuner if f returns true before the event is applied.
func newsIf[M message](body func(*outbidv1.Event) M, f func(*foldContext, M) bool) part {
	return news(func(in *foldContext, e *outbidv1.Event) bool { return f(in, body(e)) })
}

type news func(*foldContext, *outbidv1.Event) bool

func (f news) set(k *Kind) { k.Tuner, k.news = TunerHearsNews, f }

// TrialRef is implemented by every event about a trial.
type TrialRef interface {
	GetSweep() string
	GetTrial() int32
}

// message is implemented by every event's body.
type message interface{ ProtoReflect() protoreflect.Message }

func nameOf[M message]() string {
	var none M
	return string(none.ProtoReflect().Descriptor().Name())
}

// newKind makes a row for an event about the ledger or a node, or about a sweep that need not exist.
func newKind[M message](about About, body func(*outbidv1.Event) M, fold func(*foldContext, M) error, parts ...part) *Kind {
	k := &Kind{
		Name: nameOf[M](), About: about,
		fold: func(f *foldContext, e *outbidv1.Event) error { return fold(f, body(e)) },
		body: func(e *outbidv1.Event) message { return body(e) },
	}
	for _, p := range parts {
		p.set(k)
	}
	return k
}

// newSweepKind makes a row for an event about a sweep.
func newSweepKind[M interface {
	message
	GetSweep() string
}](body func(*outbidv1.Event) M, fold func(*foldContext, M) error, parts ...part,
) *Kind {
	k := newKind(AboutSweep, body, fold, parts...)
	k.sweep = func(e *outbidv1.Event) string { return body(e).GetSweep() }
	return k
}

// newTrialKind makes a row for an event about a trial.
func newTrialKind[M interface {
	message
	TrialRef
}](body func(*outbidv1.Event) M, fold func(*foldContext, M) error, parts ...part,
) *Kind {
	k := newKind(AboutTrial, body, fold, parts...)
	k.sweep = func(e *outbidv1.Event) string { return body(e).GetSweep() }
	k.trial = func(e *outbidv1.Event) TrialRef { return body(e) }
	return k
}

// lease returns the ID of the lease that an event about a trial names, if any. Averages name none.
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

// Table finds the row of an event. It is immutable.
type Table struct{ rows map[reflect.Type]*Kind }

// NewTable returns the table of events, for readers that do not compute a state.
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

// Kind returns an event's row in the table, or nil if this version does not know the kind.
func (t Table) Kind(e *outbidv1.Event) *Kind {
	if e.GetKind() == nil {
		return nil
	}
	return t.rows[reflect.TypeOf(e.GetKind())]
}

// Kind returns an event's row in the table of events: see Table.Kind.
func (st *State) Kind(e *outbidv1.Event) *Kind { return st.table.Kind(e) }

// TrialOf returns the body of an event about a trial, or nil for others.
func (st *State) TrialOf(e *outbidv1.Event) TrialRef {
	if k := st.Kind(e); k != nil && k.trial != nil {
		return k.trial(e)
	}
	return nil
}
