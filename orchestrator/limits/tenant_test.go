package limits

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestLimitsAreReadAsTheyAreWritten checks that a formatted limit is parsed to the same value, alone and as a tenant's
// setting.
func TestLimitsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, f := range Fields() {
		rapid.Check(t, func(r *rapid.T) {
			value := rapid.Int64Range(f.Least, math.MaxInt32).Draw(r, f.Name)
			if rapid.Bool().Draw(r, "none") {
				value = Unlimited
			}
			text := f.Format(value)
			if got, err := f.Parse(text); err != nil || got != value {
				r.Fatalf("%s: %s is read as %d: %v, want %d", f.Name, text, got, err, value)
			}
			set := &outbidv1.TenantLimits{}
			if err := Set(set, f.Name, text); err != nil {
				r.Fatal(err)
			}
			want := Default()
			*f.At(&want) = value
			if got, err := Over(Default(), set); err != nil || got != want {
				r.Fatalf("%s %s: %+v, %v", f.Name, text, got, err)
			}
			if got, err := ParseOver(Default(), map[string]string{f.Name: text}); err != nil || got != want {
				r.Fatalf("%s %s in a file: %+v, %v", f.Name, text, got, err)
			}
			if err := Set(set, f.Name, Inherit); err != nil {
				r.Fatal(err)
			}
			if got, err := Over(Boundless(), set); err != nil || got != Boundless() {
				r.Fatalf("%s was taken back: %+v, %v", f.Name, got, err)
			}
		})
	}
}

// TestEveryLimitOfTheAPIIsListed checks that every limit in the API is listed, with a default and a description.
func TestEveryLimitOfTheAPIIsListed(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{"device_hours": true, MaxWeight: true}
	for _, f := range Fields() {
		listed[f.Name] = true
		if f.Help == "" || f.Reached == "" || f.Default != Unlimited && f.Default < f.Least || !strings.Contains(Names(), f.Name) {
			t.Errorf("%s lacks something: %+v", f.Name, f)
		}
	}
	fields := (&outbidv1.TenantLimits{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if name := string(fields.Get(i).Name()); !listed[name] {
			t.Errorf("%s is not listed", name)
		}
	}
	if fields.Len() != len(listed) {
		t.Errorf("%d limits are listed, of %d", len(listed), fields.Len())
	}
}

func TestLimitsThatCannotBe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"sweeps=-1": `"-1": want a whole number of at least 0, or none`, "submits_per_minute=0": "of at least 1", "streams=many": `"many"`,
		"log_bytes=3kB": "want 1MiB or more, or none", "report_rate=12B": "want 1KiB or more", "blob_bytes=much": `"much" is not an amount`,
		"max_weight=0": `"0": want a number above 0`, "max_weight=Inf": "want a number above 0", "max_weight=NaN": "want a number above 0",
		"weight=1": "weight: is not a limit; want one of sweeps,",
	} {
		name, value, _ := strings.Cut(text, "=")
		if _, err := ParseOver(Default(), map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), name+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, set := range []*outbidv1.TenantLimits{
		{Sweeps: new(int32(-2))}, {SubmitsPerMinute: new(int32(0))}, {LogBytes: "much"}, {MaxWeight: new(-1.0)}, {MaxWeight: new(math.NaN())},
	} {
		if got, err := Over(Default(), set); err == nil || got != Default() {
			t.Errorf("%v: %+v, %v", set, got, err)
		}
	}
}
