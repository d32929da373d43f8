// Command types writes what kubefold needs to know about Kubernetes' Go types: the fields of the built-in kinds, for
// the protobuf decoder and for the embedded API server, and golden vectors for the decoder. In tests/testbed:
//
//	go run ./types schema  > ../../crates/wire/src/types/builtin.txt
//	go run ./types vectors > ../../crates/wire/src/protobuf/testdata/vectors.txt
//	go run ./types descriptions > ../../crates/apiserver/src/schema/openapi/descriptions.txt
//
// An end-to-end test compares both files with what this program writes. The vectors of every kind are too large to
// commit; after a version bump, check them by hand with a few seeds:
//
//	go run ./types vectors -all -seed 7 > /tmp/all.txt
//	KUBEFOLD_PROTOBUF_VECTORS=/tmp/all.txt cargo test -p kubefold-wire protobuf
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: types schema | descriptions | vectors [-all] [-seed n]"))
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
	case "descriptions":
		err = writeDescriptions(out)
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
	fmt.Fprintln(os.Stderr, "types:", err)
	os.Exit(1)
}
