// Package vul is k9s's scanner of images without the scanner: it knows of no image. Grype, which k9s asks, is half of what k9s is
// compiled of, and wants a database from the internet. It is off in k9s unless its configuration says otherwise.
//
// build.sh has the compiler read this file in place of internal/vul/scanner.go and scan.go of k9s, and the rest as it is.
package vul

import (
	"context"
	"log/slog"

	"github.com/derailed/k9s/internal/config"
)

const (
	wontFix = "(won't fix)"
	naValue = ""
)

// ImgScanner is nil while scans are off.
var ImgScanner *imageScanner

// Scan is what is known of an image.
type Scan struct {
	ID    string
	Table *table
	Tally tally
}

type imageScanner struct {
	config config.ImageScans
}

// NewImageScanner makes a scanner that finds nothing.
func NewImageScanner(cfg config.ImageScans, _ *slog.Logger) *imageScanner {
	return &imageScanner{config: cfg}
}

func colorize(row []string) []string { return row }

func (s *imageScanner) ShouldExcludes(ns string, lbls map[string]string) bool {
	return s.config.ShouldExclude(ns, lbls)
}

func (*imageScanner) GetScan(string) (*Scan, bool)       { return nil, false }
func (*imageScanner) Init(_, _ string)                   {}
func (*imageScanner) Stop()                              {}
func (*imageScanner) Score(...string) string             { return "" }
func (*imageScanner) IsInitialized() bool                { return false }
func (*imageScanner) Enqueue(context.Context, ...string) {}
