package adopt

import (
	"strings"
	"time"
)

// Duration writes 2m where Duration.String of the package time writes 2m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}
