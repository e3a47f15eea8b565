package ledger

import (
	"bytes"
	"context"
	"fmt"
	"io"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Export writes every batch of a ledger with WriteLine, and returns their number. Each line is parsed again to check
// it: fields of a newer version that this one does not know are an error, and are not dropped.
func Export(ctx context.Context, l Ledger, w io.Writer) (batches uint64, err error) {
	var text bytes.Buffer
	err = l.Read(ctx, 1, func(b *outbidv1.Batch) error {
		text.Reset()
		if err := WriteLine(&text, b); err != nil {
			return err
		}
		if _, err := parseLine(b.GetSeq(), b.GetPrevHash(), text.Bytes()); err != nil {
			return fmt.Errorf("ledger batch %d contains data that this version does not know; export it with the version that wrote it: %w",
				b.GetSeq(), err)
		}
		if _, err := w.Write(text.Bytes()); err != nil {
			return fmt.Errorf("export ledger batch %d: %w", b.GetSeq(), err)
		}
		batches++
		return nil
	})
	return batches, err
}
