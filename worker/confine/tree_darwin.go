package confine

import "errors"

var errNoGroups = errors.New("this system does not have control groups")

func openTree(string) (tree, error) { return nil, errNoGroups }

// Groups returns an error, because this system does not have control groups.
func Groups() (version string, controls []string, err error) { return "", nil, errNoGroups }
