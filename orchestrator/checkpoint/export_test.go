package checkpoint

// SetPieceForTest sets how many bytes streams of the average compute at once.
func (a *Average) SetPieceForTest(bytes int64) { a.piece = bytes }

// ExactMean is the reference for tests of means.
var ExactMean = exactMean
