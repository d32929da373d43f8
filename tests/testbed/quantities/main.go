// Command quantities writes what apimachinery's resource.Quantity makes of many texts.
//
//	cd tests/testbed && go run ./quantities > ../../crates/wire/src/quantity/vectors.txt
//
// Lines are fields between tabs:
//
//	parse  text  error                                             where it is refused
//	parse  text  canonical  rounded-up-to-milli  Value  MilliValue  (the last two end at what int64 holds)
//	add    a  b  sum  a compared with b
package main

import (
	"bufio"
	"fmt"
	"math"
		"math/rand"
	"os"
	"strings"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

var (
	numbers = []string{
		"", "0", "00", "1", "3", "8", "10", "12", "100", "999", "1000", "1023", "1024", "1025", "1500", "10000", "1024000",
		"1048576", "123456789", "999999999999999", "1152921504606846976", "9223372036854775807", "9223372036854775808",
		"123456789012345678901234567890", "0.1", "0.5", "0.05", "0.25", "1.5", "1.50", "1.500", "1.5000", "1.250", "2.0", "1.", ".",
		".5", ".001", ".0001", "007", "00.10", "0.000000001", "0.0000000001", "1.0000000001", "0.00000012345", "100.035",
		"1.000000000000000000001", "12345.678901234", "0.000000000000000000000",
	}
	suffixes = []string{
		"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0", "e1", "e3", "E3", "e+3", "e-3",
		"e-9", "e-10", "e21", "E-2", "e5",
	}
	odd = []string{
		"+", "-", "e", "E", "ee", "1e", "1ee3", "1e+", "1e-", "1k3", "1E3i", "1i", "1K", "1mi", "0.1mi", "0.1am", "aoeu", ".5i",
		"-3.01i", "-3.01e-", " 1", "1 ", "- 1", "1-", "--1", "1 Mi", "1Kib", "1x", "1Xi", "1kk", "1mm", "1.5.5", "1..5", "1.1.M",
		"1+1.0M", "e4294967297", "1e4294967297", "1e9223372036854775808", "1e2147483646", "1e-100", "1.1e-100", "0e-100",
		"1E-3", "+1Ki", "-1Ki", "-0", "-0.1", "+3", "+007", "-1.500", "-1500.5m", "1_000", "１", "0x10", "1e03", "1e1.5",
	}
)

// scaled is the value, rounded up, at most what int64 holds: Go's own answers with what its multiplication left there.
func scaled(q resource.Quantity, scale resource.Scale) string {
	up := new(inf.Dec).Round(q.AsDec(), inf.Scale(-scale), inf.RoundUp).UnscaledBig()
	switch {
	case up.IsInt64():
		return up.String()
	case up.Sign() < 0:
		return fmt.Sprint(math.MinInt64)
	}
	return fmt.Sprint(math.MaxInt64)
}

func parse(text string) string {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return err.Error()
	}
	up := q.DeepCopy()
	up.RoundUp(resource.Milli)
	if strings.Contains(text, "2147483646") {
		// Too many digits to be written out.
		return strings.Join([]string{q.String(), up.String(), fmt.Sprint(math.MaxInt64), fmt.Sprint(math.MaxInt64)}, "\t")
	}
	return strings.Join([]string{q.String(), up.String(), scaled(q.DeepCopy(), 0), scaled(q.DeepCopy(), resource.Milli)}, "\t")
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	random := rand.New(rand.NewSource(1))
	digits := func(n int) string {
		var text strings.Builder
		for range n {
			text.WriteByte("0123456789"[random.Intn(10)])
		}
		return text.String()
	}
	texts := append([]string(nil), odd...)
	for _, number := range numbers {
		for _, suffix := range suffixes {
			texts = append(texts, number+suffix)
		}
	}
	for range 1500 {
		text := []string{"", "", "", "-", "+"}[random.Intn(5)] + digits(random.Intn(22))
		if random.Intn(2) == 0 {
			text += "." + digits(random.Intn(13))
		}
		texts = append(texts, text+suffixes[random.Intn(len(suffixes))])
	}
	var good []string
	for _, text := range texts {
		fmt.Fprintf(out, "parse\t%s\t%s\n", text, parse(text))
		if _, err := resource.ParseQuantity(text); err == nil && !strings.Contains(text, "2147483646") {
			good = append(good, text)
		}
	}
	for range 1500 {
		a, b := good[random.Intn(len(good))], good[random.Intn(len(good))]
		left, right := resource.MustParse(a), resource.MustParse(b)
		compared := left.Cmp(right)
		left.Add(right)
		fmt.Fprintf(out, "add\t%s\t%s\t%s\t%d\n", a, b, left.String(), compared)
	}
}
