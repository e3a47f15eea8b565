package cli

import (
	"math"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestMessagesPrintLikeViews checks that lists of messages have the same form as the other output: numbers, zero values
// and characters as encoding/json prints them, without protojson's random spaces.
func TestMessagesPrintLikeViews(t *testing.T) {
	t.Parallel()
	type view struct {
		Resource string `json:"resource"`
		Low      number `json:"low"`
		High     number `json:"high"`
	}
	var list messages[*outbidv1.PriceRange]
	views := []view{}
	check := func() {
		t.Helper()
		for _, indent := range []bool{false, true} {
			got, err := encodeJSON(list, indent)
			if err != nil {
				t.Fatal(err)
			}
			want, err := encodeJSON(views, indent)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("got %s\nwant %s", got, want)
			}
		}
	}
	check()
	for text, x := range map[string]float64{
		"": 0, "a<b>&\"\\": .1, "é\x01": 1e21, "big": 123456789012, "small": 1e-7, "nan": math.NaN(), "inf": math.Inf(-1),
	} {
		list = append(list, &outbidv1.PriceRange{Resource: text, Low: x, High: -x})
		views = append(views, view{text, number(x), number(-x)})
	}
	check()
}
