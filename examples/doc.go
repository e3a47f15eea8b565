// Package examples tests the examples in this folder: that the program in C follows the rules of a trial.
package examples
