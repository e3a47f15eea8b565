package limits

import "math"

// Unit is the unit of a tenant's limit.
type Unit string

// The units of limits.
const (
	Count Unit = ""
	Bytes Unit = "bytes"
	Rate  Unit = "bytes/s"
	Age   Unit = "s"
)

// Unlimited is the value for no limit.
const Unlimited = -1

// Tenant has the limits of a tenant's use of shared resources; Unlimited means no limit.
type Tenant struct {
	// Sweeps that have not ended, and Submits per minute.
	Sweeps, Submits int64
	// SpecBytes is the total size of its sweeps' specs until the sweeps are deleted.
	SpecBytes int64
	// ReportRate is the total report rate of its trials, in bytes per second. ReportBytes is the total size of one
	// sweep's reports.
	ReportRate, ReportBytes int64
	// Streams is the number of open streams of the API.
	Streams int64
	// Samplers is the number of processes on the server that draw configurations.
	Samplers int64
	// CheckpointBytes, BlobBytes and LogBytes are the sizes of its checkpoints, functions and logs.
	CheckpointBytes, BlobBytes, LogBytes int64
	// RetainSweeps is how long its sweeps are kept after they end, in seconds.
	RetainSweeps int64
	// MaxWeight is the largest weight of its sweeps.
	MaxWeight float64
}

// Field is one limit of a tenant.
type Field struct {
	// Name in the API and in limits files; its flag has dashes.
	Name string
	Unit Unit
	// Default applies to a tenant without settings; it is above a normal team's use.
	Default int64
	// Least is the smallest valid value.
	Least int64
	// Help describes what is limited, and Reached what happens above the limit.
	Help, Reached string
	// At returns the field of a Tenant.
	At func(*Tenant) *int64
}

// LeastReportBytes is the smallest limit for a sweep's reports. Smaller sweeps need no check.
const LeastReportBytes = 1 * mib

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

// Fields returns the limits of a tenant that are whole numbers, in display order.
func Fields() []Field {
	const refused = "RESOURCE_EXHAUSTED (HTTP 429)"
	return []Field{
		{
			"sweeps", Count, 1000, 0, "sweeps that have not ended",
			"another sweep is rejected: " + refused, func(t *Tenant) *int64 { return &t.Sweeps },
		},
		{
			"submits_per_minute", Count, 300, 1, "sweeps submitted or extended in a minute; twenty times as many changes of any kind",
			"another one is rejected: " + refused + " with Retry-After", func(t *Tenant) *int64 { return &t.Submits },
		},
		{
			"spec_bytes", Bytes, 256 * mib, 1 * mib, "size of the specs of its sweeps until they are deleted",
			"another sweep is rejected: " + refused, func(t *Tenant) *int64 { return &t.SpecBytes },
		},
		{
			"report_rate", Rate, 256 * kib, 1 * kib, "rate of the reports of all its trials, after a burst of a thousand seconds' worth",
			"its trials wait when they report; reports of external clients are rejected: " + refused + " with Retry-After",
			func(t *Tenant) *int64 { return &t.ReportRate },
		},
		{
			"report_bytes", Bytes, 4 * gib, LeastReportBytes, "total size of the reports of one sweep",
			"the sweep is stopped with that reason", func(t *Tenant) *int64 { return &t.ReportBytes },
		},
		{
			"streams", Count, 500, 1, "sweeps that are watched and logs that are followed at once",
			"another stream is rejected: " + refused, func(t *Tenant) *int64 { return &t.Streams },
		},
		{
			"samplers", Count, 16, 1, "processes on the server that draw configurations for its sweeps",
			"its sweeps share the processes in turn", func(t *Tenant) *int64 { return &t.Samplers },
		},
		{
			"checkpoint_bytes", Bytes, 1 * tib, 1 * mib, "size of the checkpoints of its sweeps in the store",
			"another sweep is rejected: " + refused + "; checkpoints wait for free space, and their sweeps report it",
			func(t *Tenant) *int64 { return &t.CheckpointBytes },
		},
		{
			"blob_bytes", Bytes, 4 * gib, 1, "size of the functions of its sweeps in the store",
			"another function is rejected: " + refused, func(t *Tenant) *int64 { return &t.BlobBytes },
		},
		{
			"log_bytes", Bytes, 256 * mib, 1 * mib, "size of the stored output of its trials",
			"the oldest output is dropped", func(t *Tenant) *int64 { return &t.LogBytes },
		},
		{
			"retain_sweeps", Age, Unlimited, 60, "how long its sweeps are kept after they end",
			"the sweep is deleted with its checkpoints, output and reports, unless it keeps a soup", func(t *Tenant) *int64 { return &t.RetainSweeps },
		},
	}
}

// Default returns the limits of a tenant without settings.
func Default() Tenant {
	t := Tenant{MaxWeight: 1}
	for _, f := range Fields() {
		*f.At(&t) = f.Default
	}
	return t
}

// Boundless returns limits that are all unlimited.
func Boundless() Tenant {
	t := Tenant{MaxWeight: math.Inf(1)}
	for _, f := range Fields() {
		*f.At(&t) = Unlimited
	}
	return t
}
