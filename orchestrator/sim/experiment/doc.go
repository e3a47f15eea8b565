// Package experiment runs simulation experiments: a trace on a simulated cluster under one or more policies, at one or
// more values of a setting, and ledgers that are decided or simulated again. It checks all options before anything
// runs, and returns figures and texts for the caller to print.
package experiment
