package limits

import "math"

// Unit says how the value of a tenant's limit is written.
type Unit string

// Units of limits.
const (
	Count Unit = ""
	Bytes Unit = "bytes"
	Rate  Unit = "bytes/s"
)

// Unlimited is the value of a limit that bounds nothing.
const Unlimited = -1

// Tenant is what one tenant may take of what all share; Unlimited for no bound.
type Tenant struct {
	// Sweeps that have not ended, and Submits in a minute.
	Sweeps, Submits int64
	// SpecBytes is what the specs of its sweeps take until they are deleted.
	SpecBytes int64
	// ReportRate is how fast its trials may report together, in bytes a second, and ReportBytes what one sweep may in all.
	ReportRate, ReportBytes int64
	// Streams of the API that are open at once.
	Streams int64
	// Samplers are processes on the server that draw configurations.
	Samplers int64
	// CheckpointBytes, BlobBytes and LogBytes are what its checkpoints, functions and logs take.
	CheckpointBytes, BlobBytes, LogBytes int64
	// MaxWeight is the largest weight that its sweeps may have.
	MaxWeight float64
}

// Field is one limit of a tenant.
type Field struct {
	// Name in the API, in a file of limits, and with dashes as a flag.
	Name string
	Unit Unit
	// Default is what a tenant has without settings: more than a normal team takes.
	Default int64
	// Least is the smallest value that is of use.
	Least int64
	// Help says what is bounded, and Reached what a tenant sees when it takes more.
	Help, Reached string
	// At is where a Tenant has it.
	At func(*Tenant) *int64
}

// LeastReportBytes is the smallest bound of what one sweep may report: below it nothing has to be looked up.
const LeastReportBytes = 1 * mib

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

// Fields lists the limits of a tenant that are whole numbers, in the order in which they are shown.
func Fields() []Field {
	const refused = "RESOURCE_EXHAUSTED (HTTP 429)"
	return []Field{
		{
			"sweeps", Count, 1000, 0, "sweeps that have not ended",
			"another sweep is refused: " + refused, func(t *Tenant) *int64 { return &t.Sweeps },
		},
		{
			"submits_per_minute", Count, 300, 1, "sweeps submitted in a minute",
			"another sweep is refused: " + refused + " with Retry-After", func(t *Tenant) *int64 { return &t.Submits },
		},
		{
			"spec_bytes", Bytes, 256 * mib, 1 * mib, "what the specs of its sweeps take until they are deleted",
			"another sweep is refused: " + refused, func(t *Tenant) *int64 { return &t.SpecBytes },
		},
		{
			"report_rate", Rate, 256 * kib, 1 * kib, "how fast all of its trials may report, after a burst of a thousand seconds' worth",
			"its trials wait when they report; told results are refused: " + refused + " with Retry-After",
			func(t *Tenant) *int64 { return &t.ReportRate },
		},
		{
			"report_bytes", Bytes, 4 * gib, LeastReportBytes, "what the reports of one sweep take in all",
			"the sweep is stopped with that reason", func(t *Tenant) *int64 { return &t.ReportBytes },
		},
		{
			"streams", Count, 500, 1, "sweeps that are watched and logs that are followed at once",
			"another stream is refused: " + refused, func(t *Tenant) *int64 { return &t.Streams },
		},
		{
			"samplers", Count, 16, 1, "processes on the server that draw configurations for its sweeps",
			"sweeps take turns with them", func(t *Tenant) *int64 { return &t.Samplers },
		},
		{
			"checkpoint_bytes", Bytes, 1 * tib, 1 * mib, "what the checkpoints of its sweeps take in the store",
			"another sweep is refused: " + refused + "; checkpoints wait until there is room, and their sweeps say so",
			func(t *Tenant) *int64 { return &t.CheckpointBytes },
		},
		{
			"blob_bytes", Bytes, 4 * gib, 1, "what the functions of its sweeps take in the store",
			"another function is refused: " + refused, func(t *Tenant) *int64 { return &t.BlobBytes },
		},
		{
			"log_bytes", Bytes, 256 * mib, 1 * mib, "what is kept of what its trials print",
			"the oldest output is dropped", func(t *Tenant) *int64 { return &t.LogBytes },
		},
	}
}

// Default returns what a tenant may take without settings.
func Default() Tenant {
	t := Tenant{MaxWeight: 1}
	for _, f := range Fields() {
		*f.At(&t) = f.Default
	}
	return t
}

// Boundless returns limits that bound nothing.
func Boundless() Tenant {
	t := Tenant{MaxWeight: math.Inf(1)}
	for _, f := range Fields() {
		*f.At(&t) = Unlimited
	}
	return t
}
