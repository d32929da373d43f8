// Command golang writes golden vectors of how Go prints values.
//
//	cd tests/testbed && go run ./golang > ../../crates/wire/src/golang/vectors.txt
//
// An end-to-end test compares the file with what this program writes.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"unicode"

	kjson "sigs.k8s.io/json"
)

const header = `# How Go prints values, for crates/wire/src/golang.rs.
#
# Generated, do not edit: tests/testbed/golang.
#
# One JSON array to a line: a verb of Go's fmt, a value, and what Go prints. The verb "json" is encoding/json's encoder.
# Those of "printable" and "unprintable" are ranges of characters, both ends included, of those that Go's Unicode has.
`

var texts = []string{
	"", "a", `say "no" \ to`, "\a\b\f\n\r\t\v", "\x00\x01\x1f\x7f", "Größe ☸ 日本", "\u0080\u0085\u009f\u00a0\u00ad",
	"a\u200bb\u200d\u2028\u2029\ufeff", "e\u0301 \u0301", "\ue000\ufffd", "\U0001f600\U000e0001\U0010ffff", "<b>&amp;</b>'`",
}

var values = []string{
	`null`, `true`, `false`, `0`, `-7`, `9223372036854775807`, `9223372036854775808`, `0.0`, `-0.0`, `1.0`, `1.5`, `-0.25`,
	`100000.0`, `999999.5`, `1000000.0`, `1234567.0`, `123456789.5`, `0.0001`, `0.00001`, `1e-6`, `1e-7`, `1e20`, `1e21`,
	`1.7976931348623157e308`, `5e-324`, `[]`, `{}`, `[1, 2.0, "a b", null, [true]]`,
	`{"b": {"z": "<", "a": 1000000.5}, "a": [null, "\u2028\u0001\b"], "\"": 1.0}`,
}

func main() {
	fmt.Print(header)
	for _, text := range texts {
		line("%q", text, fmt.Sprintf("%q", text))
		encoded(text)
	}
	random := rand.New(rand.NewPCG(1, 0))
	for range 200 {
		float := (random.Float64() - 0.5) * pow10(random.IntN(60)-30)
		values = append(values, strconv.FormatFloat(float, 'e', random.IntN(18)-1, 64))
	}
	for _, text := range values {
		var value any
		check(kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &value))
		for _, verb := range []string{"%v", "%#v", "%T"} {
			// Messages have "%#v" of what something holds, and Go prints nothing in another way alone than there.
			if verb != "%#v" || value != nil {
				line(verb, json.RawMessage(text), fmt.Sprintf(verb, value))
			}
		}
		encoded(value)
	}
	line("printable", ranges(strconv.IsPrint), "")
	line("unprintable", ranges(func(r rune) bool { return !strconv.IsPrint(r) }), "")
}

func pow10(exponent int) float64 {
	float, err := strconv.ParseFloat("1e"+strconv.Itoa(exponent), 64)
	check(err)
	return float
}

func encoded(value any) {
	text, err := json.Marshal(value)
	check(err)
	line("json", value, string(text))
}

// ranges are those of the characters that Unicode has and for which `is` holds.
func ranges(is func(rune) bool) [][2]rune {
	var all [][2]rune
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if unicode.In(r, unicode.Cn, unicode.Cs) || !is(r) {
			continue
		}
		if last := len(all) - 1; last >= 0 && all[last][1] == r-1 {
			all[last][1] = r
		} else {
			all = append(all, [2]rune{r, r})
		}
	}
	return all
}

// line prints an array in ASCII.
func line(verb string, value any, printed string) {
	text, err := json.Marshal([]any{verb, value, printed})
	check(err)
	var out strings.Builder
	for _, r := range string(text) {
		switch {
		case r < 0x7f:
			out.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			r -= 0x10000
			fmt.Fprintf(&out, "\\u%04x\\u%04x", 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	fmt.Println(out.String())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "golang:", err)
		os.Exit(1)
	}
}
