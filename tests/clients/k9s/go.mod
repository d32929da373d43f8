// k9s as an ordinary Go module. It is built by its own go.mod and go.sum, but for its scanner of images: see scanner/scanner.go.
module kubefold.dev/k9s

go 1.26.0

require github.com/derailed/k9s v0.50.16
