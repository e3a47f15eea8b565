package usage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Prices are the prices of devices.
type Prices struct {
	// Currency is shown with costs.
	Currency string `yaml:"currency"`
	// DeviceHour is the price of a device for an hour by device type, with "*" for all other types.
	DeviceHour map[string]float64 `yaml:"device_hour"`
}

// Of returns the price of a device of a type for an hour, and whether it is known.
func (p Prices) Of(kind string) (hour float64, known bool) {
	if hour, known = p.DeviceHour[kind]; !known {
		hour, known = p.DeviceHour["*"]
	}
	return hour, known
}

// Check returns an error that names the first price that is invalid.
func (p Prices) Check() error {
	for _, kind := range slices.Sorted(maps.Keys(p.DeviceHour)) {
		if hour := p.DeviceHour[kind]; !(hour >= 0) || math.IsInf(hour, 0) {
			return fmt.Errorf("device_hour.%s: must be a finite number of at least 0, got %v", kind, hour)
		}
	}
	return nil
}

// ParsePrices parses a YAML file with prices.
func ParsePrices(data []byte) (Prices, error) {
	if err := spec.SyntaxError(data); err != nil {
		return Prices{}, err
	}
	var p Prices
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return Prices{}, fmt.Errorf("%s; want currency, and device_hour with a price by device type",
			strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n  ", " "))
	}
	return p, p.Check()
}

// PriceFile holds the prices of a YAML file. A nil PriceFile has no prices.
type PriceFile struct {
	path string
	now  atomic.Pointer[priceList]
}

// priceList are the prices in both forms.
type priceList struct {
	prices  Prices
	message *outbidv1.DevicePrices
}

// OpenPrices reads a YAML file with prices.
func OpenPrices(path string) (*PriceFile, error) {
	f := &PriceFile{path: path}
	_, err := f.Reload()
	return f, err
}

// Reload reads the file again, and reports whether the prices changed. After an error the previous prices remain.
func (f *PriceFile) Reload() (changed bool, err error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return false, fmt.Errorf("open prices: %w", err)
	}
	p, err := ParsePrices(data)
	if err != nil {
		return false, fmt.Errorf("prices %s: %w", f.path, err)
	}
	old := f.now.Load()
	if old != nil && old.prices.Currency == p.Currency && maps.Equal(old.prices.DeviceHour, p.DeviceHour) {
		return false, nil
	}
	f.now.Store(&priceList{p, &outbidv1.DevicePrices{Currency: p.Currency, DeviceHour: p.DeviceHour}})
	return old != nil, nil
}

// Prices returns the current prices.
func (f *PriceFile) Prices() Prices {
	if f == nil {
		return Prices{}
	}
	return f.now.Load().prices
}

// Message returns the current prices as a message, or nil if f is nil. It is the same pointer until they change, and must not
// be changed.
func (f *PriceFile) Message() *outbidv1.DevicePrices {
	if f == nil {
		return nil
	}
	return f.now.Load().message
}
