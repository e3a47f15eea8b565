package checkpoint

// ExactMean is what means are tested against.
var ExactMean = exactMean
