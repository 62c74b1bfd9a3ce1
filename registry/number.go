package registry

import (
	"fmt"
	"regexp"
	"strconv"

	"gopkg.in/yaml.v3"
)

// numberForm is a decimal number as everybody reads it. Other forms (010, 1e3, .inf)
// are errors.
var numberForm = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// offOrNumber is a decimal number within bounds, or 0, which turns something off.
func offOrNumber(lowest, highest float64) kind[float64] {
	k := kind[float64]{
		want:  fmt.Sprintf("0 for no limit or a number from %s to %s", formatNumber(lowest), formatNumber(highest)),
		write: formatNumber,

		schema: schema{"type": "number", "minimum": 0, "maximum": highest},
	}
	k.read = func(n *yaml.Node) (float64, error) {
		if n.Kind != yaml.ScalarNode || !numberForm.MatchString(n.Value) {
			return 0, mistyped(n, k.want)
		}
		number, err := strconv.ParseFloat(n.Value, 64)
		switch {
		case err != nil || number != 0 && number < lowest || number > highest:
			return 0, mistyped(n, k.want)
		case n.ShortTag() != "!!int" && n.ShortTag() != "!!float":
			return 0, fmt.Errorf("%w: write %s, without quotes", mistyped(n, k.want), n.Value)
		}
		return number, nil
	}
	return k
}

func formatNumber(number float64) string {
	return strconv.FormatFloat(number, 'f', -1, 64)
}
