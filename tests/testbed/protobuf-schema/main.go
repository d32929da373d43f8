// Command protobuf-schema writes what kubefold's protobuf decoder needs to know about Kubernetes' Go types.
//
//	go run . schema  > ../../../src/wire/protobuf/schema.txt
//	go run . vectors > ../../../src/wire/protobuf/testdata/vectors.txt
//
// The schema is read from the struct tags of the published API packages, by reflection, so that
// it cannot differ from what Go's own encoder writes. The vectors are objects that Go encoded,
// with the JSON that Go prints after decoding them again. Those of every kind are too large to
// commit; after a version bump, check them by hand with a few seeds:
//
//	go run . vectors -all -seed 7 > /tmp/all.txt
//	KUBEFOLD_PROTOBUF_VECTORS=/tmp/all.txt cargo test --lib wire::protobuf
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: protobuf-schema schema | vectors [-all] [-seed n]"))
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	all := flags.Bool("all", false, "every kind, not the committed selection")
	seed := flags.Uint64("seed", 1, "seed of the filler")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err)
	}

	out := bufio.NewWriter(os.Stdout)
	var err error
	switch os.Args[1] {
	case "schema":
		err = writeSchema(out)
	case "vectors":
		err = writeVectors(out, *all, *seed)
	default:
		err = fmt.Errorf("unknown mode %q", os.Args[1])
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "protobuf-schema:", err)
	os.Exit(1)
}
