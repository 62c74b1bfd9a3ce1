package statustable

import "github.com/csi-attach-hub/csi-attach-hub/hub/status"

// color is a colour of ECMA-48 terminals, as the parameters of SGR. The zero value is none.
type color string

const (
	red    color = "1;31"
	yellow color = "33"
	green  color = "32"
	faint  color = "2"
)

// colorOf returns the colour of a health.
func colorOf(s status.HealthState) color {
	switch s {
	case status.Broken:
		return red
	case status.Attention:
		return yellow
	case status.Fine:
		return green
	case status.Standby:
		return faint
	}
	return ""
}

// paint returns a text that was escaped before in the colour.
func (c color) paint(text string, style Style) string {
	if c == "" || !style.Color {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
