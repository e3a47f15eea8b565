package inventory

import (
	"regexp"
	"strings"
)

var (
	// sizePattern matches a memory size, which comes after the model.
	sizePattern = regexp.MustCompile(`^\d+(\.\d+)?(gb|mb|g|q|c)?$`)
	// formPattern matches words about the board's form, not its model.
	formPattern = regexp.MustCompile(`^(pcie?|sxm\d*|smx\d*|hbm\d*e?|nvl\d*|dgxs?|sff|ds|fhhl|generation|edition|server|` +
		`workstation|blackwell|max|gpu|with|design|q)$`)
	vendorPattern = regexp.MustCompile(`^(mock|nvidia|tesla|geforce|quadro|grid|graphics|device|rev|prod)$`)
	// proPattern matches models such as A6000, whose short name does not include "RTX".
	proPattern = regexp.MustCompile(`^a\d{3,4}$`)
	seriesWord = regexp.MustCompile(`^(rtx|gtx|gt|gts|titan|pro)$`)
)

// TypeOf returns the short type of a GPU for its driver's name: "a100" for "NVIDIA A100-SXM4-80GB", "rtx3090" for
// "NVIDIA GeForce RTX 3090".
func TypeOf(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return r == ' ' || r == '-' || r == '_' || r == '/' || r == '(' || r == ')'
	})
	var model []string
	for _, word := range words {
		switch {
		case vendorPattern.MatchString(word), formPattern.MatchString(word):
		case sizePattern.MatchString(word) && len(model) > 0 && !seriesWord.MatchString(model[len(model)-1]):
			// A size, not the number of a series such as RTX 3090.
		case proPattern.MatchString(word) && len(model) == 1 && model[0] == "rtx":
			model[0] = word
		default:
			model = append(model, word)
		}
	}
	short := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.Join(model, ""))
	if short == "" {
		return "gpu"
	}
	return short[:min(len(short), 32)]
}
