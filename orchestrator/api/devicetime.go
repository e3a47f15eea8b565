package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/usage"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Usage sums up the device time of leases. usage.Book implements it.
type Usage interface {
	Sum(ctx context.Context, q usage.Query) (*usage.Table, error)
}

// usageService has the call about device time and its cost.
type usageService struct {
	book   Usage
	prices *usage.PriceFile
}

// maxUsageColumns limits the columns of an answer.
const maxUsageColumns = 8

// GetUsage implements the service.
func (s *usageService) GetUsage(ctx context.Context, req *outbidv1.GetUsageRequest) (*outbidv1.GetUsageResponse, error) {
	if s.book == nil {
		return nil, status.Error(codes.Unimplemented, "this server does not account for device time")
	}
	q, err := usageQuery(req)
	if err != nil {
		return nil, err
	}
	if len(req.GetPrices()) == 0 {
		q.Prices = s.prices.Prices()
	}
	q.Sees = caller(ctx).owns
	t, err := s.book.Sum(ctx, q)
	if many, ok := errors.AsType[usage.TooManyRowsError](err); ok {
		return nil, fieldError("by", "%s", many)
	}
	if err != nil {
		return nil, err
	}
	resp := &outbidv1.GetUsageResponse{Until: timestamppb.New(t.Until), By: req.GetBy(), Currency: q.Prices.Currency}
	if !t.Since.IsZero() {
		resp.Since = timestamppb.New(t.Since)
	}
	for _, r := range t.Rows {
		resp.Rows = append(resp.Rows, usageRow(r))
	}
	resp.Total = usageRow(&t.Total)
	return resp, nil
}

// usageQuery checks a request.
func usageQuery(req *outbidv1.GetUsageRequest) (usage.Query, error) {
	q := usage.Query{By: req.GetBy(), Prices: usage.Prices{DeviceHour: req.GetPrices()}}
	if len(q.By) > maxUsageColumns {
		return q, fieldError("by", "has %d columns; at most %d are allowed", len(q.By), maxUsageColumns)
	}
	if err := usage.CheckColumns(q.By); err != nil {
		return q, fieldError("by", "%s", err)
	}
	if err := q.Prices.Check(); err != nil {
		return q, fieldError("prices", "%s", err)
	}
	if req.GetSince() != nil {
		if q.Since = req.GetSince().AsTime(); !req.GetSince().IsValid() || q.Since.Unix() < 0 {
			return q, fieldError("since", "must be a time after 1970")
		}
	}
	if req.GetUntil() != nil {
		if q.Until = req.GetUntil().AsTime(); !req.GetUntil().IsValid() || !q.Until.After(q.Since) {
			return q, fieldError("until", "must be later than since")
		}
	}
	return q, nil
}

func usageRow(r *usage.Row) *outbidv1.UsageRow {
	row := &outbidv1.UsageRow{Values: r.Values, DeviceSeconds: r.DeviceSeconds()}
	if !r.Unpriced {
		row.Cost = &r.Cost
	}
	return row
}
