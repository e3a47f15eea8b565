// Package examples holds the tests of the examples beside it: that the program in C keeps to the rules of a trial.
package examples
