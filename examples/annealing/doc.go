// Package annealing holds a program in C as an example of a trial, and the test that it keeps to the rules: it trains
// until the step it is told, and goes on from its checkpoint as if it had never ended.
package annealing
