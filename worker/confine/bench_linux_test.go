package confine

import "testing"

// BenchmarkConfine creates and removes the confinement of a trial, with and without namespaces.
func BenchmarkConfine(b *testing.B) {
	for name, none := range map[string]bool{"namespaces": false, "none": true} {
		b.Run(name, func(b *testing.B) {
			if CanSwitch() != nil {
				b.Skip("this takes root")
			}
			c, err := Open(b.Context(), Config{Dir: b.TempDir(), User: Auto, NoSpaces: none})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				in, err := c.New(b.Context(), Limits{})
				if err == nil {
					err = in.Close()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			if err := c.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
