// Package generate makes the workloads of papers (Gavel, Themis, Hadar, HadarE, OASiS, OGASched, ASTRAEA, Venus) from
// their published parameters and a seed. It is deterministic: the same options give the same trace.
package generate
