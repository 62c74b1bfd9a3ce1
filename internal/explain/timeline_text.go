package explain

import (
	"fmt"
	"unicode/utf8"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const (
	// mostTimelines and mostLines bound what the text shows of timelines: the cause above them should stay on the screen.
	mostTimelines, mostLines = 3, 14
	// maxStepText bounds the bytes of a step in the text. The whole error of the last try is in the finding about it.
	maxStepText = 200
)

// timelines writes where the time went, for the volumes of which more is known than since when they wait.
func (p *printer) timelines(volumes []VolumeReport) {
	shown := 0
	for _, v := range volumes {
		if v.Timeline == nil || len(v.Timeline.Rows) < 3 || shown == mostTimelines {
			continue
		}
		shown++
		p.WriteString("\n")
		of, soFar := "", ""
		if len(volumes) > 1 {
			of = " of " + v.Title
		}
		if v.Result != Attached || v.Timeline.Rows[len(v.Timeline.Rows)-1].Lasts {
			soFar = " so far"
		}
		p.line("", "Timeline%s: %s%s since %s", of, v.Timeline.Total(), soFar, v.Timeline.Start.UTC().Format("2006-01-02T15:04:05Z07:00"))
		for _, s := range status.CutMiddle(v.Timeline.Rows, mostLines) {
			p.step(s)
		}
		if v.Timeline.Most != "" {
			p.line("  ", "Most of the time: %s.", shortened(v.Timeline.Most))
		}
	}
}

func (p *printer) step(s status.TimelineStep) {
	text := s.Text
	if s.Error != "" {
		text = shortened(text) + ": " + s.Error
	}
	p.line(fmt.Sprintf("  %7s %6s  ", s.Beginning(), s.Length()), "%s", shortened(text))
}

// shortened returns the beginning of a text.
func shortened(text string) string {
	if len(text) <= maxStepText {
		return text
	}
	end := maxStepText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + " [...]"
}
