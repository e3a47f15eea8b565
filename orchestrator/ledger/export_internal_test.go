package ledger

// StopArchive makes Archive fail before a step: write, verify, record, delete or clean.
func (l *JetStream) StopArchive(at string, err error) {
	l.archiveStep = func(step string) error {
		if step == at {
			return err
		}
		return nil
	}
}
