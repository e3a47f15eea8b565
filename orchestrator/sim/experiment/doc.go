// Package experiment runs simulation experiments: a trace on a simulated cluster under one policy or several, at one
// value of a setting or several, and ledgers that are decided or run again. It checks all of what was asked for before
// anything runs, and returns figures and texts; who calls it prints them.
package experiment
