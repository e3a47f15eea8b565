package setting

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Check returns an error for the first setting whose value its description does not allow, or nil. The error begins
// with the name of the setting. Default must have been called before.
func Check(m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if err := checkField(m, fields.Get(i)); err != nil {
			return err
		}
	}
	return nil
}

func checkField(m protoreflect.Message, field protoreflect.FieldDescriptor) error {
	s, problem := Of(field), ""
	switch v := m.Get(field); {
	case field.IsList() && field.Kind() == protoreflect.DoubleKind:
		for i := range v.List().Len() {
			if problem = checkNumber(s, v.List().Get(i).Float()); problem != "" {
				return fmt.Errorf("%s[%d]: %s", field.Name(), i, problem)
			}
		}
	case field.IsList():
	case field.Kind() == protoreflect.DoubleKind:
		problem = checkNumber(s, v.Float())
	case field.Kind() == protoreflect.Int32Kind, field.Kind() == protoreflect.Int64Kind:
		problem = checkWhole(m, s, v.Int())
	case field.Kind() == protoreflect.StringKind:
		problem = checkWord(field, s, v.String())
	}
	if problem != "" {
		return fmt.Errorf("%s: %s", field.Name(), problem)
	}
	return nil
}

// checkWhole describes what is wrong with a whole number, or returns "".
func checkWhole(m protoreflect.Message, s *outbidv1.Setting, v int64) string {
	zero := zeroMeaning(s)
	most := int64(math.MaxInt64)
	if s.GetAtMost() != "" {
		most = Int(m, protoreflect.Name(s.GetAtMost()))
	}
	switch {
	case s.GetRequired() != "" && v == 0:
		return "is missing; set " + s.GetRequired()
	case s.GetRequired() != "" && v < 0:
		return fmt.Sprintf("%d is not above 0; set %s", v, s.GetRequired())
	case zero != "" && v == 0:
		return ""
	case zero != "" && s.Max == nil && s.GetAtMost() == "":
		if v < 0 {
			return fmt.Sprintf("%d is negative; use 0 %s", v, zero)
		}
		return ""
	case isWithin(s, float64(v)) && v <= most:
		return ""
	case s.GetAtMost() != "" && zero == "" && isWithin(s, float64(v)):
		return fmt.Sprintf("%d is above %s (%d)", v, s.GetAtMost(), most)
	}
	return outOfBounds(s, zero, most, v)
}

// outOfBounds says between which whole numbers v should be.
func outOfBounds(s *outbidv1.Setting, zero string, most, v int64) string {
	text := "must be " + bounds(s)
	if s.GetAtMost() != "" && zero != "" {
		text = fmt.Sprintf("must be from %v to %s (%d)", s.GetMin(), s.GetAtMost(), most)
	}
	if zero != "" {
		text += ", or 0 " + zero
	}
	text += fmt.Sprintf(", got %d", v)
	if s.GetHint() != "" {
		text += "; " + s.GetHint()
	}
	return text
}

// checkNumber describes what is wrong with a real number, or returns "".
func checkNumber(s *outbidv1.Setting, v float64) string {
	if isWithin(s, v) && !math.IsInf(v, 0) {
		return ""
	}
	text := "must be "
	if s.GetUnit() != "" {
		text += s.GetUnit() + " "
	}
	text += fmt.Sprintf("%s, got %v", bounds(s), v)
	if s.GetUnit() != "" {
		text += fmt.Sprintf("; %s is usual", s.GetDefault())
	}
	return text
}

// checkWord describes what is wrong with a word, or returns "".
func checkWord(field protoreflect.FieldDescriptor, s *outbidv1.Setting, v string) string {
	if len(s.GetWords()) == 0 || slices.Contains(s.GetWords(), v) {
		return ""
	}
	words := s.GetWords()
	if field.Name() == Sampler {
		words = slices.Concat(words, Learning())
	}
	return fmt.Sprintf("%q is unknown; use %s", v, List(words))
}

// isWithin reports whether a number is within the bounds; NaN is not.
func isWithin(s *outbidv1.Setting, v float64) bool {
	return (s.Min == nil || v >= s.GetMin()) && (s.Max == nil || v <= s.GetMax()) &&
		(s.Above == nil || v > s.GetAbove()) && (s.Below == nil || v < s.GetBelow()) && !math.IsNaN(v)
}

// bounds describes the bounds, such as "at least 1" or "above 0 and below 1".
func bounds(s *outbidv1.Setting) string {
	if s.Min != nil && s.Max != nil {
		return "from " + decimal(s.GetMin()) + " to " + decimal(s.GetMax())
	}
	low, high := "", ""
	switch {
	case s.Min != nil:
		low = "at least " + decimal(s.GetMin())
	case s.Above != nil:
		low = "above " + decimal(s.GetAbove())
	}
	switch {
	case s.Max != nil:
		high = "at most " + decimal(s.GetMax())
	case s.Below != nil:
		high = "below " + decimal(s.GetBelow())
	}
	if low != "" && high != "" {
		return low + " and " + high
	}
	return low + high
}

// decimal writes a number without an exponent.
func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// zeroMeaning describes the meaning of 0 if it is allowed regardless of the bounds, or returns "".
func zeroMeaning(s *outbidv1.Setting) string {
	if s.GetPart() > 0 {
		return fmt.Sprintf("for a %dth of it", s.GetPart())
	}
	return s.GetZero()
}
