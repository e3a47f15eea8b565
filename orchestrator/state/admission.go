package state

import (
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// pricing is what the policy's newest prices are.
type pricing struct{ prices *outbidv1.Prices }

// Prices of what devices will cost; nil if the policy has made none. They never change.
func (p pricing) Prices() *outbidv1.Prices { return p.prices }

// sweepAnswered: a policy with admission has said something to a sweep. What it is told anew is a note too; that it still waits, or goes
// on as planned, is none.
func (f *folding) sweepAnswered(e *outbidv1.SweepAnswered) error {
	s, now := f.sweep, e.GetAdmission()
	news := s.Admission.GetKind() != now.GetKind() || now.GetKind() == outbidv1.AdmissionKind_ADMISSION_KIND_BROKEN
	s.Admission = now
	s.Version++
	if news {
		level := "info"
		switch now.GetKind() {
		case outbidv1.AdmissionKind_ADMISSION_KIND_BROKEN, outbidv1.AdmissionKind_ADMISSION_KIND_REJECTED:
			level = "warning"
		}
		s.addNote(newNote(f.at, &outbidv1.Note{Level: level, Text: now.GetText()}))
	}
	return nil
}

func (s *Sweep) addNote(n *outbidv1.SweepNote) {
	s.Notes = append(s.Notes, n)
	if len(s.Notes) > maxNotes {
		s.Notes = slices.Clone(s.Notes[len(s.Notes)-maxNotes:]) // readers may have the list
	}
}
