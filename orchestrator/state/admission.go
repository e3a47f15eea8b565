package state

import (
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// pricing holds the policy's newest prices.
type pricing struct{ prices *outbidv1.Prices }

// Prices returns the policy's prices of devices, or nil if it has made none. They must not be changed.
func (p pricing) Prices() *outbidv1.Prices { return p.prices }

// answered records a policy's admission decision about a sweep. A new decision also adds a note; that the sweep
// still waits, or continues as planned, does not.
func (s *Sweep) answered(at time.Time, e *outbidv1.SweepAnswered) error {
	now := e.GetAdmission()
	news := s.Admission.GetKind() != now.GetKind() || now.GetKind() == outbidv1.AdmissionKind_ADMISSION_KIND_BROKEN
	s.Admission = now
	s.Version++
	if news {
		level := "info"
		switch now.GetKind() {
		case outbidv1.AdmissionKind_ADMISSION_KIND_BROKEN, outbidv1.AdmissionKind_ADMISSION_KIND_REJECTED:
			level = "warning"
		}
		s.addNote(newNote(at, &outbidv1.Note{Level: level, Text: now.GetText()}))
	}
	return nil
}

func (s *Sweep) addNote(n *outbidv1.SweepNote) {
	s.Notes = append(s.Notes, n)
	if len(s.Notes) > maxNotes {
		s.Notes = slices.Clone(s.Notes[len(s.Notes)-maxNotes:]) // readers may have the list
	}
}
